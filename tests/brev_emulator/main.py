"""Entry point of the emulated `brev`; started without site packages, so that it starts fast."""

from __future__ import annotations

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from brev_emulator.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))

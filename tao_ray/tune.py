"""``python -m tao_ray.tune CONFIG``: run a search. The same as ``tao-ray tune CONFIG``."""

from __future__ import annotations

import sys

from tao_ray.cli import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))

"""How a running search is asked to stop: signals, and a file that another process leaves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.stop_rules import Halt

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FILE_EVERY_S = 0.5
EXIT_INTERRUPTED = 130


class Control:
    """Turns stop requests into a halt of the conductor.

    The first signal stops the run in order. The second leaves at once: jobs run on, detached and
    recorded, and are found again by --resume.
    """

    def __init__(self, conductor: Conductor, stop_file: Path, leave: Callable[[str], None]):
        """leave: says a last word to the user before the process ends on the spot."""
        self._conductor = conductor
        self._stop_file = stop_file
        self._leave = leave
        self._signal: int | None = None
        self._looked = 0.0
        stop_file.unlink(missing_ok=True)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside the block."""
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def poll(self) -> None:
        """Called often by the search loop."""
        if self._signal is not None:
            self._halt(f"stopped by {signal.Signals(self._signal).name}")
        elif time.monotonic() - self._looked > _FILE_EVERY_S:
            self._looked = time.monotonic()
            if self._stop_file.exists():
                self._halt("stopped on request")

    def _halt(self, reason: str) -> None:
        self._conductor.stop(Halt(reason, resumable=True, interrupted=True))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            return
        self._leave("left at once: jobs run on and are recorded, --resume finds them again")
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)

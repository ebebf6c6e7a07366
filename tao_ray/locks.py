"""Advisory locks on open files. They end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any

_POLL_S = 0.05


def try_lock(file: IO[Any], seconds: float) -> bool:
    """Lock `file` for this process alone; closing it ends that.

    Returns False if another process still holds it after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True

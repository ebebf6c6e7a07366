"""Keeps everything but our own view out of the terminal."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def quiet(log: Path) -> Iterator[TextIO]:
    """Send what any library or child process prints to `log`; yields the real terminal.

    File descriptors are redirected, not `sys.stdout`: Ray's processes write to them directly.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_out, saved_err = os.dup(1), os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    terminal = os.fdopen(os.dup(saved_out), "w", encoding="utf-8", errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            logging.captureWarnings(True)
            yield terminal
    finally:
        logging.captureWarnings(False)
        terminal.close()
        root.removeHandler(handler)
        handler.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved_out, 1)
        os.dup2(saved_err, 2)
        os.close(saved_out)
        os.close(saved_err)

"""Errors that a user is meant to read.

Every error says what failed, where, and what to do. The command line prints ``str(error)`` and
exits with ``error.exit_code``; anything that is not a :class:`TaoRayError` is a defect of ours.
This module imports nothing, so every layer may use it.
"""

from __future__ import annotations


class TaoRayError(Exception):
    """What failed (`message`), where (`where`) and what to do about it (`remedy`)."""

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, remedy: str | None = None):
        self.message = message
        self.where = where
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  -> {self.remedy}" if self.remedy else text

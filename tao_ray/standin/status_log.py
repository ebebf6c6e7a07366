"""Writes status.json as TAO does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any


class StatusLog:
    """Appends one JSON object per line, each with a single write.

    `kpi` stays set: it is repeated on every later line until it is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kpi: Mapping[str, float] | None = None

    def write(
        self, message: str, status: str = "RUNNING", data: Mapping[str, Any] | None = None
    ) -> None:
        """Append a line. data: fields that come first, such as an epoch's."""
        now = datetime.now()
        record = {
            **(data or {}),
            "date": f"{now.month}/{now.day}/{now.year}",
            "time": f"{now.hour}:{now.minute}:{now.second}",
            "status": status,
            "verbosity": "INFO",
            "message": message,
        }
        if self.kpi is not None:
            record["kpi"] = self.kpi
        line = json.dumps(record) + "\n"  # NaN and Infinity stand bare, as TAO writes them
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

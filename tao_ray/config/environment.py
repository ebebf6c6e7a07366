"""Environment variables as a user writes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


def _environment_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


EnvironmentText = Annotated[
    str,
    BeforeValidator(_environment_text),
    WithJsonSchema({"type": ["string", "integer"]}),
]

"""What every section of a configuration is made of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tao_ray.config.problems import KeyPath, key_text
from tao_ray.config.source import typed


@dataclass(frozen=True)
class Finding:
    """What a section found wrong with a key of its own (`path`, relative to the section).

    unknown: the key does not exist, and the text for unknown keys is used.
    """

    path: KeyPath
    message: str = "unknown key"
    hint: str = ""
    unknown: bool = False


def refusal(*findings: Finding) -> PydanticCustomError:
    """The validation error that carries `findings`, each to be shown with its own line."""
    text = "; ".join(f"{key_text(item.path)}: {item.message}".lstrip(": ") for item in findings)
    return PydanticCustomError("refused", "{text}", {"text": text, "findings": findings})


class Section(BaseModel):
    """A part of the configuration: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def rules(self) -> Iterator[Finding]:
        """What is wrong between keys that are right by themselves."""
        yield from ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Section:
        findings = tuple(self.rules())
        if findings:
            raise refusal(*findings)
        return self


@dataclass(frozen=True)
class Words:
    """How errors and documentation name what a key accepts, where its type does not say.

    choices: the names it accepts, if these are few; the nearest is suggested for a wrong one.
    """

    text: str
    choices: tuple[str, ...] = ()


_NOT_A_LOCAL_PATH = re.compile(r"[A-Za-z][\w+.-]*://|\$\{")


def absolute(text: str, directory: Path) -> str:
    """`text` as an absolute path, ``~`` expanded; URIs and spec interpolations stay as they are."""
    if not text or _NOT_A_LOCAL_PATH.match(text):
        return text
    return os.path.normpath(directory / os.path.expanduser(text))


def in_directory(text: str, info: ValidationInfo) -> str:
    """`absolute`, relative to the directory that is the validation's context, if it has one."""
    return absolute(text, info.context["directory"]) if info.context else text


def _number(value: Any) -> Any:
    value = typed(value)
    finite = isinstance(value, int | float) and abs(value) < float("inf")
    if isinstance(value, bool) or not finite:
        raise PydanticCustomError("number_type", "must be a number")
    return value


# The constraints stand before the validator so that they reach the JSON Schema.
Whole = Annotated[int, Strict(), Ge(0), BeforeValidator(typed)]
Count = Annotated[int, Strict(), Ge(1), BeforeValidator(typed)]
Real = Annotated[float, Strict(), AllowInfNan(False), BeforeValidator(typed)]
Positive = Annotated[float, Strict(), AllowInfNan(False), Gt(0), BeforeValidator(typed)]
Number = Annotated[
    Any, BeforeValidator(_number), WithJsonSchema({"type": "number"}), Words("a number")
]
"""A number that stays the integer it was written as."""
Flag = Annotated[bool, Strict(), BeforeValidator(typed)]
Value = Annotated[Any, BeforeValidator(typed)]
LocalPath = Annotated[str, AfterValidator(in_directory), Words("a path")]
Location = Annotated[str, AfterValidator(in_directory), Words("a path or URI")]

"""From a file, ``--set`` arguments and the environment to a `RunConfig`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from tao_ray.config.overrides import apply_overrides
from tao_ray.config.problems import ConfigError, Problem
from tao_ray.config.run import RunConfig
from tao_ray.config.source import Place, Reader, Source
from tao_ray.config.translate import add_problems


def load_config(
    path: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> RunConfig:
    """Read and validate a configuration.

    overrides: ``a.b=value`` texts, put over the file's values in order.
    env: what ``${env:NAME}`` refers to; default: this process's environment.
    Raises ConfigError with everything that is wrong.
    """
    environment = os.environ if env is None else env
    file = Path(path).expanduser()
    source = Source(Place(str(path), None))
    data = Reader(source, environment).read(_text(file, str(path)))
    if source.problems and data is None:
        raise ConfigError([problem for _, problem in source.problems])
    if not isinstance(data, dict):
        what = "the file is empty" if data is None else "the file must hold a mapping"
        raise _file_error(str(path), what, "start with 'name:' and 'model:'")
    source.data = data
    apply_overrides(source, overrides, environment)
    directory = file.absolute().parent
    try:
        config = RunConfig.model_validate(source.data, context={"directory": directory})
    except ValidationError as error:
        add_problems(source, error)
    if source.problems:
        problems = [problem for _, problem in source.problems]
        raise ConfigError(
            sorted(problems, key=lambda item: (item.file != str(path), item.line or 0))
        )
    return config.written_in(directory, source.references)


def _text(file: Path, shown: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _file_error(shown, "the file is not UTF-8 text") from None
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "give the path of a YAML file"
        raise _file_error(shown, f"cannot be read: {reason}", hint) from None


def _file_error(file: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem(file, None, "", "", message, hint)])

"""Hyperparameter search for NVIDIA TAO networks on Ray Tune.

    import tao_ray
    result = tao_ray.run(tao_ray.load_config("config.yaml"))
    print(result.best["hyperparameters"])

Names are imported on first use, so that ``import tao_ray`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tao_ray._version import __version__

if TYPE_CHECKING:
    from tao_ray.config import RunConfig, load_config
    from tao_ray.experiment.api import run
    from tao_ray.experiment.result import Result

_HOMES = {
    "Result": "tao_ray.experiment.result",
    "RunConfig": "tao_ray.config",
    "load_config": "tao_ray.config",
    "run": "tao_ray.experiment.api",
}

__all__ = ["Result", "RunConfig", "__version__", "load_config", "run"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

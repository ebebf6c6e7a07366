"""The Ray cluster that supervises trials, kept quiet."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tao_ray.config import RayConfig

# Read by Ray at import or at start. Our journal, view and signal handling replace Tune's own.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_THRESHOLD_S": "10",
}
_OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Trials exchange results of a few kilobytes."""


def prepare_environment(max_concurrent: int) -> None:
    """Set Ray's switches; call before Ray is imported."""
    os.environ.update(_ENVIRONMENT)
    # Without this Tune starts one supervising process after the other.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max_concurrent)


@contextmanager
def cluster(config: RayConfig, processes: int) -> Iterator[None]:
    """A running Ray: the one at `config.address`, or one of our own that ends with the block.

    processes: supervising processes that will run at a time.
    """
    import ray

    level = getattr(logging, config.log_level.upper())
    if config.address:
        ray.init(address=config.address, logging_level=level, log_to_driver=False)
    else:
        ray.init(
            num_cpus=config.num_cpus or os.cpu_count(),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=level,
            log_to_driver=False,
            configure_logging=False,
        )
    try:
        yield
    finally:
        ray.shutdown()


class WarmWorkers:
    """Keeps processes at hand in which the next trials' supervisors start at once.

    A process that imports Ray Tune takes a second of CPU time; Ray gives a new actor an idle
    process that has run a task, so running a task that imports what a supervisor needs moves that
    second off the way between the end of one trial and the start of the next.
    """

    def __init__(self, spare: int):
        import ray

        self._spare = spare
        self._warm = ray.remote(num_cpus=0)(_import_supervisor)
        self._pending: list[Any] = []

    def top_up(self) -> None:
        """Make sure `spare` idle processes exist or are on their way. Returns at once."""
        import ray

        if self._pending:
            _, self._pending = ray.wait(self._pending, num_returns=len(self._pending), timeout=0)
        if not self._pending:
            self._pending = [self._warm.remote() for _ in range(self._spare)]


def _import_supervisor() -> None:
    import tao_ray.trial.trainable  # noqa: F401

    # Tasks that were short would all run in one process.
    time.sleep(0.2)

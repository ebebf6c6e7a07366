"""The Ray cluster that supervises trials, kept quiet."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tao_ray.experiment.dashboard import addresses, with_dashboard

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
    # Ray would run supervisors, and the jobs they start on this host, at the lowest priority.
    "RAY_worker_niceness": "0",
}
_OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Trials exchange results of a few kilobytes."""


def prepare_environment(max_concurrent: int) -> None:
    """Set Ray's switches; call before Ray is imported."""
    os.environ.update(_ENVIRONMENT)
    # Starting a supervisor is a second of CPU time. One at a time, Tune's default, leaves cores
    # idle; all at once starves the driver and the trials that already run.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(min(max_concurrent, os.cpu_count() or 1))


@contextmanager
def cluster(config: RayConfig, processes: int) -> Iterator[list[str]]:
    """A running Ray: the one at `config.address`, or one of our own that ends with the block.

    Yields what the user is to be told of it. processes: supervising processes that will run at a
    time.
    """
    import ray

    level = getattr(logging, config.log_level.upper())
    if config.address:
        context = ray.init(address=config.address, logging_level=level, log_to_driver=False)
    else:
        context = ray.init(
            num_cpus=config.num_cpus or os.cpu_count(),
            include_dashboard=with_dashboard(config),
            dashboard_port=config.dashboard_port,
            _metrics_export_port=config.metrics_port,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=level,
            log_to_driver=False,
            configure_logging=False,
        )
    try:
        yield addresses(context)
    finally:
        ray.shutdown()

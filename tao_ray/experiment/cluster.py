"""The Ray cluster that supervises trials, kept quiet."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError
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
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_THRESHOLD_S": "10",
    # Ray would run supervisors, and the jobs they start on this host, at the lowest priority.
    "RAY_worker_niceness": "0",
}
_TO_BE_EXPECTED = {
    "ray.tune.analysis.experiment_analysis": "Failed to fetch metrics",  # the journal has them
    "ray.tune.execution.tune_controller": "You are trying to access request_stop_experiment",
}
"""Logger of Ray's -> how a warning of it begins that tells nobody anything."""
_OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Trials exchange results of a few kilobytes."""
_ATTEMPTS = 3
_REACH_S = 10.0


def prepare_environment(max_concurrent: int) -> None:
    """Set Ray's switches; call before Ray is imported."""
    os.environ.update(_ENVIRONMENT)
    os.environ.pop("TUNE_RESULT_BUFFER_LENGTH", None)  # results one by one, which is the default
    for name in _TO_BE_EXPECTED:
        logging.getLogger(name).addFilter(_tells_something)
    # As many trials may end at a time as there are: Tune keeps a process for the next trial only
    # if that trial is pending. How many are started at a time, the search adapter bounds.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max_concurrent)


def _tells_something(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_TO_BE_EXPECTED[record.name])


@contextmanager
def cluster(config: RayConfig, processes: int) -> Iterator[list[str]]:
    """A running Ray: the one at `config.address`, or one of our own that ends with the block.

    Yields what the user is to be told of it. processes: supervising processes that will run at a
    time.
    """
    import ray

    level = getattr(logging, config.log_level.upper())
    if config.address:
        _require_reachable(config.address)
        connect = partial(ray.init, address=config.address)
    else:
        connect = partial(
            ray.init,
            num_cpus=config.num_cpus or os.cpu_count(),
            include_dashboard=with_dashboard(config),
            dashboard_port=config.dashboard_port,
            _metrics_export_port=config.metrics_port,
            object_store_memory=_OBJECT_STORE_BYTES,
            configure_logging=False,
        )
    context = _connected(partial(connect, logging_level=level, log_to_driver=False))
    try:
        yield addresses(context)
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Ray itself takes minutes to say that nobody is there. Raises TaoRayError."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdigit()):
        return  # "auto", or a form only Ray knows
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise TaoRayError(
            f"no Ray cluster answers at {address}: {error}",
            where="ray.address",
            remedy="start one there (`ray start --head`), or leave ray.address out",
        ) from None


def _connected(connect: Callable[[], Any]) -> Any:
    """Ray's context. A busy host can miss Ray's own, fixed deadline for starting: tried again.

    Raises TaoRayError.
    """
    import ray

    for attempt in range(_ATTEMPTS):
        try:
            return connect()
        except Exception as error:  # Ray raises bare Exceptions here
            ray.shutdown()
            logging.getLogger(__name__).warning("starting Ray, attempt %d: %s", attempt, error)
            reason = error
    raise TaoRayError(
        f"Ray did not start, tried {_ATTEMPTS} times: {reason}",
        where="ray",
        remedy="see driver.log; free memory or CPUs on this host, then go on with --resume",
    )

"""Ray's dashboard and metrics endpoint: whether they are there, and what a user is told of them."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tao_ray.errors import TaoRayError

if TYPE_CHECKING:
    from tao_ray.config import RayConfig

_PACKAGES = ("aiohttp", "aiohttp_cors", "grpc", "opentelemetry", "prometheus_client")
"""What ``ray[default]`` adds and its dashboard imports."""


def is_installed() -> bool:
    """Whether Ray's dashboard and metrics endpoint can run."""
    return all(find_spec(name) for name in _PACKAGES)


def with_dashboard(config: RayConfig) -> bool:
    """Whether to start the dashboard. Raises TaoRayError if it is asked for but not installed."""
    if config.dashboard is True and not is_installed():
        raise TaoRayError(
            "Ray's dashboard is not installed",
            where="ray.dashboard",
            remedy="pip install 'tao_ray[dashboard]', or set it to auto",
        )
    return is_installed() if config.dashboard == "auto" else config.dashboard


def addresses(context: Any) -> list[str]:
    """What a user is told of a cluster that was just reached. context: what ``ray.init`` returned.

    Ray asks for its token unless RAY_AUTH_MODE is ``disabled``; the token itself is not shown.
    """
    import ray

    lines = []
    if context.dashboard_url:
        token = os.environ.get("RAY_AUTH_MODE") == "token"
        login = " (it asks for a token: `ray get-auth-token` prints it)" if token else ""
        lines.append(f"Ray dashboard: http://{context.dashboard_url}{login}")
    if is_installed():
        here = ray.get_runtime_context().get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == here)
        host, port = node["NodeManagerAddress"], node["MetricsExportPort"]
        lines.append(f"gauges for Prometheus: http://{host}:{port}/metrics")
    return lines

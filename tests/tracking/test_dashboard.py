"""Ray's dashboard: how a user reaches it, and our gauges at the Prometheus endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tao_ray.config import RayConfig
from tao_ray.errors import TaoRayError
from tao_ray.experiment.dashboard import is_installed, with_dashboard

PROBE = Path(__file__).with_name("dashboard_probe.py")


def test_whether_the_dashboard_is_started() -> None:
    assert with_dashboard(RayConfig()) is is_installed()
    assert with_dashboard(RayConfig(dashboard=False)) is False
    if not is_installed():
        with pytest.raises(TaoRayError, match="not installed") as caught:
            with_dashboard(RayConfig(dashboard=True))
        assert "tao_ray[dashboard]" in str(caught.value.remedy)


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="ray[default] is not installed")
@pytest.mark.parametrize("mode", ["", "disabled"])
def test_a_user_reaches_the_dashboard_and_the_gauges(tmp_path: Path, mode: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path)} | ({"RAY_AUTH_MODE": mode} if mode else {})
    probe = subprocess.run(
        [sys.executable, str(PROBE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert probe.returncode == 0, probe.stderr
    found = json.loads(probe.stdout.splitlines()[-1])
    assert found["page"] == 200
    if mode == "disabled":
        assert found["without"] == 200
        assert "get-auth-token" not in found["lines"][0]
    else:
        assert found["without"] == 401
        assert found["with token"] == found["login"] == found["with cookie"] == 200
        assert "`ray get-auth-token` prints it" in found["lines"][0]
        assert found["token is told"] is False
    assert found["tagged"]
    gauges = found["gauges"]
    assert all(gauges.values()), gauges
    assert float(gauges["tao_best_metric"][0]) == pytest.approx(1 - 1 / 14)
    assert sorted(n for text in gauges["tao_trials"] if (n := float(text))) == [1, 2, 6]
    assert gauges["tao_epochs_trained"] == ["41.0"]

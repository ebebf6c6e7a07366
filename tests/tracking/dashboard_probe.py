"""Starts a cluster as a run does, sets the gauges, and asks the dashboard as a user would."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_run

from tao_ray.config import RayConfig
from tao_ray.experiment.cluster import cluster, prepare_environment
from tao_ray.trial.state import RunState


def answer(url: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """(status, body, cookie)."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            cookie = (reply.headers.get("Set-Cookie") or "").split(";")[0]
            return reply.status, reply.read().decode(), cookie
    except urllib.error.HTTPError as error:
        return error.code, "", ""


def main() -> dict[str, Any]:
    prepare_environment(1)
    found: dict[str, Any] = {}
    with cluster(RayConfig(num_cpus=1), 1) as lines:
        found["lines"] = lines
        dashboard, metrics = [re.findall(r"http://\S+", line)[0] for line in lines]
        found["page"] = answer(dashboard)[0]
        found["without"] = answer(f"{dashboard}/api/version")[0]
        ray = str(Path(sys.executable).with_name("ray"))
        command = [ray] if Path(ray).exists() else [sys.executable, "-m", "ray.scripts.scripts"]
        shown = subprocess.run([*command, "get-auth-token"], capture_output=True, text=True)
        token = {"Authorization": f"Bearer {shown.stdout.strip()}"}
        found["with token"] = answer(f"{dashboard}/api/version", **token)[0]
        status, _, cookie = answer(f"{dashboard}/api/authenticate", "POST", **token)
        found["login"] = status
        found["with cookie"] = answer(f"{dashboard}/api/version", Cookie=cookie)[0]
        found["token is told"] = shown.stdout.strip() in "".join(lines)

        from tao_ray.tracking.gauges import GAUGES, GaugeTracker

        tracker = GaugeTracker(made_run.info(Path()))
        events = [replace(e, seq=i, time=1000.0 + i) for i, e in enumerate(made_run.events(), 1)]
        tracker.update(RunState.fold(events))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = answer(metrics)[1]
            found["gauges"] = {
                name: re.findall(rf"^ray_{name}{{.*}} (\S+)$", text, re.MULTILINE)
                for name in GAUGES
            }
            if all(found["gauges"].values()):
                break
            time.sleep(1)
        found["tagged"] = 'run="made/20260102-030405"' in text
    return found


if __name__ == "__main__":
    print(json.dumps(main()))

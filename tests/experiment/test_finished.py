"""A run that came to its end is shown again; one with something left to do is gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small_runs import SmallRun, configure

from tao_ray.config import RunConfig
from tao_ray.experiment.finished import finished
from tao_ray.experiment.result import write_result
from tao_ray.journal import Event


def ended(tmp_path: Path, **sections: Any) -> SmallRun:
    run = SmallRun(configure(tmp_path, **sections))
    write_result(run.plan, run.run_dir, run.search(), run.platform, "done", "")
    return run


def test_what_is_left_to_do(tmp_path: Path) -> None:
    run = ended(tmp_path)
    config: RunConfig = run.plan.config
    result = finished(run.run_dir, config)
    assert result is not None
    assert (result.status, result.exit_code) == ("done", 0)
    assert result.best is not None

    in_a_bucket = config.model_copy(update={"results": "s3://bucket/x"})
    assert finished(run.run_dir, in_a_bucket) is None
    run.journal.append(Event("published", data={"uri": "s3://bucket/x", "bytes": 1}))
    assert finished(run.run_dir, in_a_bucket) is not None

    tracked = configure(tmp_path, tracking={"wandb": {"project": "p"}})
    assert finished(run.run_dir, tracked) is None
    marks = {name: {"step": 2, "done": True, "online": False} for name in ("0000", "0001")}
    cursor = run.run_dir.path / "wandb_cursor.json"
    cursor.write_text(json.dumps({"marks": marks, "publish": None}))
    assert finished(run.run_dir, tracked) is not None

    data = json.loads(run.run_dir.result.read_text())
    for changed in (
        {"final_evaluation": {"status": "failed"}},
        {"run": {**data["run"], "resumable": True}},
    ):
        run.run_dir.result.write_text(json.dumps({**data, **changed}))
        assert finished(run.run_dir, config) is None

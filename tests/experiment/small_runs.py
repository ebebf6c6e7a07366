"""Small runs of the network that comes with tao_ray, without Ray: real jobs, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tao_ray.config import RunConfig, load_config
from tao_ray.experiment.conductor import Conductor
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.run_dir import RunDir, results_root
from tao_ray.experiment.stop_rules import Limits
from tao_ray.journal import Journal
from tao_ray.platforms.local import LocalPlatform
from tao_ray.trial.setup import Epoch, Outcome
from tao_ray.trial.state import RunState
from tao_ray.trial.supervisor import Supervisor

EPOCHS = 2


def configure(directory: Path, **sections: Any) -> RunConfig:
    """A configuration of two short trials; `sections` replace its own."""
    document = {
        "name": "small",
        "model": {"package": "digits_mlp"},
        "search": {
            "algorithm": "random",
            "parameters": {
                "train.optim.lr": {"min": 0.0002, "max": 0.01, "scale": "log"},
                "model.hidden_dim": {"options": [32, 64, 96]},
            },
            "trials": 2,
            "max_epochs": EPOCHS,
            "seed": 1,
        },
        "results": str(directory / "runs"),
        **sections,
    }
    path = directory / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_config(path, env={})


class SmallRun:
    """A run in its directory, with the journal open."""

    def __init__(self, config: RunConfig):
        self.plan: Plan = make_plan(config)
        self.run_dir = RunDir.create(results_root(config.results), config.name)
        self.platform = LocalPlatform(self.run_dir.jobs)
        self.journal = Journal(self.run_dir.journal)

    def search(self) -> RunState:
        """Run every trial to its end."""
        plan = self.plan
        conductor = Conductor(
            plan.algorithm(),
            plan.objective,
            self.journal,
            Limits(plan.max_epochs, 1),
            plan.evaluation,
        )
        conductor.mark(
            "started",
            network=plan.network.name,
            action=plan.network.action.name,
            platform="local",
        )
        while (trial := conductor.next_proposed()) is not None:
            supervisor = Supervisor(trial.id, plan.setup(0), self.platform, self.journal)
            while trial.alive:
                news = supervisor.next(1.0)
                if isinstance(news, Epoch):
                    conductor.on_epoch(
                        trial.id, news.epoch, news.metrics, job=news.job, seconds=news.seconds
                    )
                elif isinstance(news, Outcome):
                    assert news.failure is None, news.failure
                    conductor.on_completed(trial.id)
        conductor.catch_up()
        return conductor.state

    def jobs(self) -> list[str]:
        """Ids of all jobs that were ever started."""
        return sorted(p.name for p in (self.run_dir.jobs / ".jobs").iterdir() if p.is_dir())


def trained_checkpoint(directory: Path) -> str:
    """A checkpoint to start from."""
    from tao_ray.standin.main import main

    spec = {"results_dir": str(directory / "teacher"), "train": {"num_epochs": 1}}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "teacher.yaml"
    path.write_text(yaml.safe_dump(spec))
    assert main(["train", "-e", str(path)]) == 0
    return str(directory / "teacher" / "train" / "model_epoch_000.pth")

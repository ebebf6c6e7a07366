"""One job of any action, on the path of a search's jobs: preflight, launch, stream, fetch, release.

Its directory is ``<results>/<name>-<action>/<time>/``: ``experiment.yaml``, ``spec.yaml``,
``status.json``, ``log.txt``, ``result.json``, and what the job wrote. With ``results`` in a bucket
all of it is stored there, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import yaml
from rich.console import Console

from tao_ray.experiment.consent import Answers, consent
from tao_ray.experiment.data_checks import data_checks
from tao_ray.experiment.jobs import Ended, JobPlan, run_job
from tao_ray.experiment.machines import machines
from tao_ray.experiment.preflight import Preflight, network_checks, require_ok, results_checks
from tao_ray.experiment.publish import bucket_checks, publish_job
from tao_ray.experiment.run_dir import RunDir, is_uri, results_root
from tao_ray.experiment.staging import STAGED_DATA, stage
from tao_ray.files import write_text
from tao_ray.journal import Journal
from tao_ray.network.resolve import resolve_action
from tao_ray.network.status import EpochReport, EpochUpdate, StatusEvent
from tao_ray.platforms import open_platform
from tao_ray.platforms.base import HasPrices, LogLine, Platform, SharesFiles
from tao_ray.trial.job import RESULTS_DIR

if TYPE_CHECKING:
    from tao_ray.config import RunConfig

RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"


@dataclass(frozen=True)
class SingleJob:
    """How it went. data: the content of its ``result.json``."""

    directory: Path
    data: Mapping[str, Any]

    @property
    def exit_code(self) -> int:
        """0 if the job did what it should, else 3."""
        return 0 if self.data["status"] == DONE else 3


def run_single_job(
    config: RunConfig, action: str, answers: Answers, console: Console, *, logs: bool = False
) -> SingleJob:
    """Run `action` once. logs: show the job's own output too. Raises TaoRayError."""
    root = results_root(config.results)
    platform, gpus = open_platform(config.platform, root, 1)
    job = _job(config, action, gpus)
    network = job.network
    checks = network_checks(config, network)
    checks += [*platform.preflight(), *results_checks(root), *bucket_checks(config)]
    checks += data_checks(config, network, platform)[0]
    require_ok(Preflight(tuple(checks)), console)
    job.spec(platform)  # what is wrong with it is better said before anything exists
    if isinstance(platform, HasPrices):
        price = platform.price_per_hour(1)
        shown = "at a price that is not known" if price is None else f"at {price:.2f} USD/h"
        consent(platform, answers, [], f"{action} of {network.name} {shown}")
    platform.close()
    run_dir = RunDir.create(root, f"{config.name}-{action}")
    write_text(run_dir.experiment, yaml.safe_dump(config.dump(), sort_keys=False))
    platform, _ = open_platform(config.platform, run_dir.jobs, 1)
    say = partial(console.print, markup=False, soft_wrap=True)
    record = run_dir.evaluation("data_staging")
    config, _ = stage(config, [network], platform, root / STAGED_DATA, record, say)
    job = _job(config, action, gpus)
    console.print(f"{network.name} {action} in {run_dir.path}", markup=False, soft_wrap=True)
    return _Run(config, job, platform, run_dir, console, logs).run()


def _job(config: RunConfig, action: str, gpus: int) -> JobPlan:
    network = resolve_action(config.model, config.data, config.directory, action)
    takes_weights = network.wiring.checkpoint_keys and action != config.model.action
    return JobPlan(
        network,
        id=f"{action}-1",
        workspace=action,
        gpus=gpus,
        num_epochs=config.search.max_epochs if network.conventions.epoch_keys else None,
        start_from=config.model.checkpoint if takes_weights else None,
        checkpoint_interval=config.checkpoint.interval,
        train_sample_count=config.data.train_sample_count,
    )


class _Run:
    def __init__(
        self,
        config: RunConfig,
        job: JobPlan,
        platform: Platform,
        run_dir: RunDir,
        console: Console,
        logs: bool,
    ):
        self._config = config
        self._job = job
        self._platform = platform
        self._run_dir = run_dir
        self._console = console
        self._logs = logs
        self._secrets = [s for s in job.network.secrets.values() if s]

    def run(self) -> SingleJob:
        job, platform = self._job, self._platform
        spec = job.spec(platform)
        spec_name = f"spec.{job.network.config_format}"
        write_text(self._run_dir.path / spec_name, spec.render(job.network.config_format))
        for change in spec.adjustments:
            self._say(f"adjusted: {change.key} {change.asked} -> {change.used}: {change.reason}")
        self._write(RUNNING)  # before anything of the job exists
        with (
            closing(Journal(self._run_dir.journal)) as journal,
            machines(platform, journal, self._say),
            open(self._run_dir.path / "log.txt", "wb") as log,
        ):
            try:
                ended = self._follow(log)
            except KeyboardInterrupt:
                self._write(STOPPED)
                raise
            finally:
                self._fetch()
        platform.close()
        if ended.failure is None:
            self._say(f"done in {ended.seconds:.3g} s: {_shown(ended.metrics) or 'no metrics'}")
        else:
            self._say(f"failed: {ended.failure.kind.cause} - {ended.failure.message}")
            for line in ended.failure.evidence:
                self._say(f"    {line}")
            self._say(f"  -> {ended.failure.kind.remedy}")
        data = self._write(DONE if ended.failure is None else FAILED, ended)
        self._say(f"result: {self._run_dir.result}")
        if is_uri(self._config.results):
            self._say(publish_job(str(self._config.results), self._run_dir, self._results()))
        return SingleJob(self._run_dir.path, data)

    def _results(self) -> Path:
        """What the job wrote, on this host."""
        if isinstance(self._platform, SharesFiles):
            return Path(self._job.results_dir(self._platform))
        return self._run_dir.path / RESULTS_DIR

    def _follow(self, log: BinaryIO) -> Ended:
        hours = self._config.failures.job_timeout_hours
        return run_job(
            self._platform,
            self._job,
            watch=lambda event: self._show(event, log),
            metric=self._job.network.metric,
            timeout_s=hours * 3600 if hours else None,
        )

    def _show(self, event: StatusEvent | LogLine | None, log: BinaryIO) -> None:
        if isinstance(event, LogLine):
            line = event.data
            for secret in self._secrets:
                line = line.replace(secret.encode(), b"***")
            log.write(line + b"\n")
            if self._logs:
                self._say(line.decode("utf-8", "replace"))
        elif isinstance(event, EpochReport):
            total = f"/{event.max_epochs}" if event.max_epochs else ""
            self._say(f"epoch {event.epoch}{total}: {_shown(event.metrics)}")
        elif isinstance(event, EpochUpdate):
            self._say(f"epoch {event.epoch}: {_shown(event.metrics)}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _write(self, status: str, ended: Ended | None = None) -> dict[str, Any]:
        network = self._job.network
        failure = ended.failure if ended else None
        data = {
            "status": status,
            "network": network.name,
            "action": network.action.name,
            "image": network.image,
            "job": self._job.id,
            "results_dir": self._job.results_dir(self._platform),
            "metrics": dict(ended.metrics) if ended else {},
            "epochs": [
                {"epoch": epoch, "metrics": dict(metrics)}
                for epoch, metrics in sorted((ended.epochs if ended else {}).items())
            ],
            "seconds": ended.seconds if ended else None,
            "failure": failure.to_json() if failure else None,
        }
        write_text(self._run_dir.result, json.dumps(data, indent=1))
        return data

    def _fetch(self) -> None:
        """Bring home what this host cannot see, then remove the job's records there."""
        handle = self._platform.attach(self._job.id)
        if handle is None:
            return
        files = handle.list(RESULTS_DIR)
        status = f"{RESULTS_DIR}/{self._job.network.status_path}"
        if status in files:
            handle.fetch(status, str(self._run_dir.path / "status.json"))
        if not isinstance(self._platform, SharesFiles) and files:
            handle.fetch(RESULTS_DIR, str(self._run_dir.path / RESULTS_DIR))
        self._platform.release(self._job.id)


def _shown(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.5g}" for name, value in metrics.items())

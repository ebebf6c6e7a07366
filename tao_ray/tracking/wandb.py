"""Weights & Biases: one group per run, one W&B run per trial, one that sums up.

Online, W&B's server is asked how far it knows a trial, and told the rest. Offline, each trial is
written in one go when it ends: the journal has it until then, and a folder for `wandb sync` is
whole or not there (`wandb_cursor`). Either way a driver that takes over adds what is missing.
"""

from __future__ import annotations

import netrc
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from tao_ray.errors import TaoRayError
from tao_ray.tracking import wandb_content as content
from tao_ray.tracking.tracker import RunInfo, Say
from tao_ray.tracking.wandb_cursor import Cursor, Mark
from tao_ray.trial.state import PAUSED, RunState, TrialState

if TYPE_CHECKING:
    from tao_ray.config import WandbConfig
    from tao_ray.experiment.result import Result

_Mode = Literal["online", "offline"]
_OPEN_RUNS = 32
"""An open run costs the helper process of W&B some megabytes and a connection."""
_SUMMARY_EVERY_S = 60.0
_INIT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 30.0
PATIENCE_S = 3 * _FINISH_TIMEOUT_S
"""How long the end of a run waits for W&B."""


def is_online(config: WandbConfig) -> bool:
    """Whether the server is to be used: as configured, or if there is an API key.

    Only whether there is a key is looked at. Raises TaoRayError for `online` without one.
    """
    if config.mode == "auto":
        return os.environ.get("WANDB_MODE", "online") == "online" and has_key()
    if config.mode == "online" and not has_key():
        raise TaoRayError(
            "there is no API key for Weights & Biases",
            where="tracking.wandb.mode",
            remedy="set WANDB_API_KEY or run `wandb login`; or set mode to auto or offline",
        )
    return config.mode == "online"


def has_key() -> bool:
    """Whether W&B would find an API key: in the environment or in the netrc file."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    candidates = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    for path in [Path(c).expanduser() for c in candidates if c]:
        try:
            return netrc.netrc(path).authenticators(host) is not None
        except FileNotFoundError:
            continue
        except (OSError, netrc.NetrcParseError):
            return False
    return False


class WandbTracker:
    """Implements `tracker.Tracker`; to be run in the background, for it waits for W&B."""

    def __init__(self, config: WandbConfig, info: RunInfo, online: bool, say: Say):
        self._config = config
        self._info = info
        self._say = say
        self._cursor = Cursor(info.directory)
        self._online = online
        self._streams: dict[str, _Stream] = {}
        self._summed_up = time.monotonic()
        self._not_sent: list[Path] = []
        self._introduced = False
        if not online:
            say("W&B: recording offline" + ("" if has_key() else ", there is no API key"))
        elif folders := self._cursor.to_sync():
            self._online = False
            say(f"W&B: recording offline, as before: {len(folders)} folders are not synced yet")

    def update(self, state: RunState) -> None:
        """See `Tracker`."""
        if state.started is None:
            return
        for trial in state.trials.values():
            if self._cursor[trial.id].done:
                continue
            if self._online:
                self._follow(state, trial)
            elif not trial.alive:
                self._record_trial(state, trial)
        if self._online and time.monotonic() - self._summed_up > _SUMMARY_EVERY_S:
            self._summed_up = time.monotonic()
            self._follow_summary(state, None)

    def close(self, state: RunState, result: Result | None) -> None:
        """See `Tracker`."""
        self.update(state)
        if state.started is None:
            return
        data = result.data if result else None
        if self._online:
            self._follow_summary(state, data)
        self._finish(list(self._streams.values()))
        if not self._online:
            for trial in state.trials.values():
                mark = self._cursor[trial.id]
                if not mark.done and (not trial.alive or _last(trial) > mark.step):
                    self._record_trial(state, trial)
            self._record_summary(state, data)
        self._cursor.close()
        self._say_what_to_sync()

    def _say_what_to_sync(self) -> None:
        folders = [str(path) for path in self._not_sent]
        folders += [f"{self._cursor.folder}/offline-run-*"] if self._cursor.to_sync() else []
        if folders:
            self._say(f"W&B: not uploaded yet; do so with\n  wandb sync {' '.join(folders)}")

    # -- online: runs are open while their trial runs -------------------------------------------

    def _follow(self, state: RunState, trial: TrialState) -> None:
        """Tell the server what is new of a trial, and close its run while the trial rests."""
        stream = self._streams.get(trial.id)
        rests = not trial.alive or trial.status == PAUSED
        known = stream.step if stream else self._cursor[trial.id].step
        if _last(trial) <= known and not (rests if stream else not trial.alive):
            return
        config = content.trial_config(state, trial)
        stream = stream or self._open_stream(state, trial.id, config)
        if stream is not None:
            stream.log(trial, self._info)
            if rests:
                self._finish([stream])

    def _follow_summary(self, state: RunState, result: Mapping[str, Any] | None) -> None:
        name = content.SUMMARY
        stream = self._streams.get(name)
        stream = stream or self._open_stream(state, name, content.run_config(state))
        if stream is not None:
            _log_summary(stream.run, state, self._info, result)
            stream.step = state.last_seq

    def _open_stream(self, state: RunState, name: str, config: Mapping[str, Any]) -> _Stream | None:
        """A run on the server, or None if there is none to be had: all goes on offline then."""
        if len(self._streams) >= _OPEN_RUNS:
            self._finish([next(iter(self._streams.values()))])
        if not self._online:
            return None
        try:
            run = self._open(state, name, config, "online", self._info.directory)
        except Exception as error:  # W&B raises errors of its own and those of what it uses
            self._go_offline(f"the server does not take runs: {error}")
            return None
        if not self._introduced:
            self._introduced = True
            self._say(f"W&B: {run.project_url}/groups/{quote(self._info.id, safe='')}")
        self._streams[name] = _Stream(name, run)
        return self._streams[name]

    def _finish(self, streams: Sequence[_Stream]) -> None:
        """Close runs when all is sent, or give up on the server."""
        for stream in streams:
            del self._streams[stream.name]
        with ThreadPoolExecutor(max(len(streams), 1)) as pool:
            sent = list(pool.map(_Stream.finish, streams))
        for stream in streams:
            self._cursor.commit(stream.name, Mark(stream.step, stream.done))
        if not all(sent):
            pairs = zip(streams, sent, strict=True)
            self._not_sent += [stream.folder for stream, was_sent in pairs if not was_sent]
            self._go_offline("the server does not answer")

    def _go_offline(self, reason: str) -> None:
        if self._online:
            self._online = False
            self._say(f"W&B: {reason}; recording offline from here on")
            self._finish(list(self._streams.values()))

    # -- offline: a run is written in one go ----------------------------------------------------

    def _record_trial(self, state: RunState, trial: TrialState) -> None:
        mark = self._cursor[trial.id]
        run = self._open_offline(state, trial.id, content.trial_config(state, trial))
        stream = _Stream(trial.id, run, mark.step)
        stream.log(trial, self._info)
        stream.finish()
        self._cursor.publish(trial.id, Mark(stream.step, stream.done), stream.folder)

    def _record_summary(self, state: RunState, result: Mapping[str, Any] | None) -> None:
        run = self._open_offline(state, content.SUMMARY, content.run_config(state))
        stream = _Stream(content.SUMMARY, run, state.last_seq)
        _log_summary(run, state, self._info, result)
        stream.finish()
        self._cursor.publish(content.SUMMARY, Mark(stream.step), stream.folder)

    def _open_offline(self, state: RunState, name: str, config: Mapping[str, Any]) -> Any:
        self._cursor.staging.mkdir(parents=True, exist_ok=True)
        return self._open(state, name, config, "offline", self._cursor.staging)

    def _open(
        self, state: RunState, name: str, config: Mapping[str, Any], mode: _Mode, directory: Path
    ) -> Any:
        import wandb

        return wandb.init(
            project=self._config.project,
            entity=self._config.entity,
            group=self._info.id,
            id=content.run_id(self._info, state, name),
            name=name if name == content.SUMMARY else f"trial {name}",
            job_type="summary" if name == content.SUMMARY else "trial",
            config=dict(config),
            dir=str(directory),
            mode=mode,
            resume="allow",
            reinit="create_new",
            settings=_settings(),
        )


class _Stream:
    """An open run of W&B. step: the last it was given; done: its trial has ended."""

    def __init__(self, name: str, run: Any, step: int = 0):
        self.name = name
        self.run = run
        # What the server knows of a run that goes on is not told again.
        self.step = max(step, run.starting_step - 1)
        self.done = False
        self._exit_code = 0

    @property
    def folder(self) -> Path:
        """Where the run is on this machine."""
        return Path(self.run.settings.sync_dir)

    def log(self, trial: TrialState, info: RunInfo) -> None:
        """Add the epochs that are new, and what the trial comes to so far."""
        for epoch in sorted(e for e in trial.epochs if e > self.step):
            self.run.log(content.row(trial.epochs[epoch]), step=epoch, commit=True)
            self.step = epoch
        self.run.summary.update(content.trial_summary(trial, info.objective))
        self.done = not trial.alive
        self._exit_code = content.exit_code(trial)

    def finish(self) -> bool:
        """Close the run. False if not all could be sent in time; all of it is in `folder`."""
        try:
            self.run.finish(exit_code=self._exit_code)
        except TimeoutError:
            return False
        return True


def _last(trial: TrialState) -> int:
    """The last epoch that there is a point for, 0 if there is none."""
    return max(trial.epochs, default=0)


def _log_summary(
    run: Any, state: RunState, info: RunInfo, result: Mapping[str, Any] | None
) -> None:
    import wandb

    columns, rows = content.trial_table(state, info.objective)
    summary = content.run_summary(state, info.objective, result)
    run.log(
        {"trials": wandb.Table(columns=list(columns), data=rows)}, step=state.last_seq, commit=True
    )
    run.summary.update(summary)


def _settings() -> Any:
    """No word to the terminal, no reading of this machine, no waiting without end."""
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        symlink=False,
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        init_timeout=_INIT_TIMEOUT_S,
        finish_timeout=_FINISH_TIMEOUT_S,
        finish_timeout_raises=True,
        # A run that is stopped on W&B's pages would interrupt this process.
        stop_fn=lambda: None,
    )

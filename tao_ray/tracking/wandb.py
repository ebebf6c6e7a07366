"""Weights & Biases: one group per run, one W&B run per trial, one that sums up.

Online, W&B's server is asked how far it knows a trial, and told the rest. Offline, each trial is
written in one go when it ends: the journal has it until then, and a folder for `wandb sync` is
whole or not there (`wandb_cursor`). Either way a driver that takes over adds what is missing.
"""

from __future__ import annotations

import logging
import netrc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
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

_log = logging.getLogger(__name__)

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
        self._introduced = False
        self._summed_up = time.monotonic()
        self._unsynced = self._cursor.to_sync()
        if not online:
            say("W&B: recording offline" + ("" if has_key() else ", there is no API key"))

    def update(self, state: RunState) -> None:
        """See `Tracker`."""
        if not state.trials:
            return
        for trial in state.trials.values():
            if self._cursor[trial.id].done:
                continue
            if self._goes_online(trial.id):
                self._attempt(partial(self._follow, state, trial))
            elif self._goes_offline(trial.id) and not trial.alive:
                self._record_trial(state, trial)
        due = time.monotonic() - self._summed_up > _SUMMARY_EVERY_S
        if due and self._goes_online(content.SUMMARY):
            self._summed_up = time.monotonic()
            self._attempt(partial(self._follow_summary, state, None))

    def close(self, state: RunState, result: Result | None) -> None:
        """See `Tracker`."""
        self.update(state)
        if not state.trials:
            return
        data = result.data if result else None
        if self._goes_online(content.SUMMARY):
            self._attempt(partial(self._follow_summary, state, data))
        self._attempt(partial(self._finish, list(self._streams.values())))
        behind = [t for t in state.trials.values() if self._is_behind(t)]
        for trial in behind:
            if self._goes_offline(trial.id):
                self._record_trial(state, trial)
        if self._goes_offline(content.SUMMARY):
            self._record_summary(state, data)
        self._cursor.close()
        summed_up = self._cursor[content.SUMMARY].step == state.last_seq
        self._say_what_is_left(not summed_up or any(self._is_behind(trial) for trial in behind))

    def _goes_online(self, name: str) -> bool:
        """Whether a run is told to the server: if that answers and no folder is to be sent first.

        Otherwise a point could be there twice, or points come in the wrong order.
        """
        return self._online and name not in self._unsynced

    def _goes_offline(self, name: str) -> bool:
        return not self._goes_online(name) and not self._cursor[name].online

    def _is_behind(self, trial: TrialState) -> bool:
        mark = self._cursor[trial.id]
        return not mark.done and (not trial.alive or _last(trial) > mark.step)

    def _say_what_is_left(self, behind: bool) -> None:
        if self._cursor.to_sync():
            folders = f"{self._cursor.folder}/offline-run-*"
            self._say(f"W&B: not uploaded yet; do so with\n  wandb sync {folders}")
        if behind:
            self._say(
                "W&B: the server knows a part of some trials; to tell it the rest\n"
                f"  tao-ray resume {self._info.directory}"
            )

    # -- online: runs are open while their trial runs -------------------------------------------

    def _attempt(self, show: Callable[[], None]) -> None:
        try:
            show()
        except Exception as error:  # W&B raises errors of its own and those of what it uses
            _log.warning("W&B failed online", exc_info=True)
            self._go_offline((str(error) or type(error).__name__).splitlines()[0])

    def _follow(self, state: RunState, trial: TrialState) -> None:
        """Tell the server what is new of a trial, and close its run while the trial rests."""
        stream = self._streams.get(trial.id)
        rests = not trial.alive or trial.status == PAUSED
        known = stream.step if stream else self._cursor[trial.id].step
        if _last(trial) <= known and not (rests if stream else not trial.alive):
            return
        config = content.trial_config(state, trial)
        stream = stream or self._open_stream(state, trial.id, config)
        stream.log(state, trial, self._info)
        if rests:
            self._finish([stream])

    def _follow_summary(self, state: RunState, result: Mapping[str, Any] | None) -> None:
        name = content.SUMMARY
        stream = self._streams.get(name)
        stream = stream or self._open_stream(state, name, content.run_config(state))
        _log_summary(stream.run, state, self._info, result)
        stream.step = state.last_seq

    def _open_stream(self, state: RunState, name: str, config: Mapping[str, Any]) -> _Stream:
        if len(self._streams) >= _OPEN_RUNS:
            self._finish([next(iter(self._streams.values()))])
        if not self._online:
            raise ConnectionError("the server does not answer")
        mark = self._cursor[name]
        self._cursor.commit(name, replace(mark, online=True))
        try:
            run = self._open(state, name, config, "online", self._info.directory)
        except Exception:
            self._cursor.commit(name, mark)  # it was told nothing
            raise
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
        for stream, was_sent in zip(streams, sent, strict=True):
            if was_sent:
                self._cursor.commit(stream.name, Mark(stream.step, stream.done, online=True))
        if not all(sent):
            self._go_offline("the server does not answer")

    def _go_offline(self, reason: str) -> None:
        if self._online:
            self._online = False
            self._say(f"W&B: {reason}; trials that it does not know are recorded offline")
            self._finish(list(self._streams.values()))
            _end_helper()

    # -- offline: a run is written in one go ----------------------------------------------------

    def _record_trial(self, state: RunState, trial: TrialState) -> None:
        mark = self._cursor[trial.id]
        run = self._open_offline(state, trial.id, content.trial_config(state, trial))
        stream = _Stream(trial.id, run, mark.step)
        stream.log(state, trial, self._info)
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

    def log(self, state: RunState, trial: TrialState, info: RunInfo) -> None:
        """Add the epochs that are new, and what the trial comes to so far."""
        for epoch in sorted(e for e in trial.epochs if e > self.step):
            self.run.log(content.row(trial.epochs[epoch]), step=epoch, commit=True)
            self.step = epoch
        self.run.summary.update(content.trial_summary(state, trial, info.objective))
        self.done = not trial.alive
        self._exit_code = content.exit_code(trial)

    def finish(self) -> bool:
        """Close the run. False if not all could be sent in time."""
        try:
            self.run.finish(exit_code=self._exit_code)
        except Exception:  # it took too long, or the helper process of W&B has died
            _log.warning("W&B run %s was not finished", self.name, exc_info=True)
            return False
        return True


def _last(trial: TrialState) -> int:
    """The last epoch that there is a point for, 0 if there is none."""
    return max(trial.epochs, default=0)


def _end_helper() -> None:
    """End W&B's helper process, which may be in any state; the next run starts a new one."""
    import wandb

    try:
        wandb.teardown()
    except Exception:
        _log.warning("W&B's helper process did not end in order", exc_info=True)


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

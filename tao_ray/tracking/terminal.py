"""The live view of a run in the terminal: a table on a TTY, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tao_ray.report.text import count
from tao_ray.search.base import TrialStatus
from tao_ray.trial.state import (
    EVALUATING,
    PAUSED,
    PENDING,
    RUNNING,
    Objective,
    RunState,
    TrialState,
)

if TYPE_CHECKING:
    from tao_ray.experiment.plan import Plan
    from tao_ray.experiment.result import Result
    from tao_ray.experiment.run_dir import RunDir

_STYLES = {
    RUNNING: "cyan",
    EVALUATING: "cyan",
    PENDING: "dim",
    PAUSED: "yellow",
    TrialStatus.COMPLETED.value: "green",
    TrialStatus.STOPPED.value: "dim",
    TrialStatus.FAILED.value: "red",
}
_PLAIN_EVERY_S = 30.0
_ROWS_RESERVED = 10
_MAX_PARAMETERS = 4
_WIDEST = 1000


class TerminalView:
    """Implements `experiment.view.View`."""

    def __init__(self) -> None:
        self._console = Console()
        self._live: Live | None = None
        self._objective: Objective | None = None
        self._trials = 0
        self._max_epochs = 1
        self._concurrent = 1
        self._ended: set[str] = set()
        self._best: str | None = None
        self._spoke = time.monotonic()

    def open(self, terminal: TextIO, plan: Plan, run_dir: RunDir) -> None:
        """Introduce the run."""
        self._console = Console(file=terminal, highlight=False)
        self._objective = plan.objective
        self._trials, self._max_epochs = plan.settings.trials, plan.max_epochs
        self._concurrent = plan.settings.max_concurrent
        objective = plan.objective
        facts = [
            f"{plan.network.name} {plan.network.action.name}",
            f"{objective.direction} {objective.metric} (at: {objective.at})",
            f"{plan.config.search.algorithm}: {count(self._trials, 'trial')}"
            f"{'' if plan.single_shot else ' of up to ' + count(self._max_epochs, 'epoch')}, "
            f"{self._concurrent} at a time, {count(len(plan.derived.space), 'parameter')}",
        ]
        self._console.print(f"[bold]{run_dir.id}[/]  {' | '.join(facts)}", soft_wrap=True)
        for warning in plan.derived.warnings:
            self._console.print(f"[yellow]note:[/] {warning}", soft_wrap=True)
        self._console.print(f"[dim]{run_dir.path}[/]", soft_wrap=True)
        if self._console.is_terminal:
            self._live = Live(
                Text("starting Ray ..."),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,  # what libraries print belongs into driver.log
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def update(self, state: RunState, now: float) -> None:
        """Show the state."""
        assert self._objective is not None
        if self._live is not None:
            rows = self._console.size.height - _ROWS_RESERVED
            self._live.update(
                Group(
                    trial_table(
                        state, self._objective, self._max_epochs, rows, self._console.width
                    ),
                    Text(self._summary(state, now)),
                ),
                refresh=True,
            )
            return
        self._print_changes(state)
        if time.monotonic() - self._spoke > _PLAIN_EVERY_S:
            self._line(self._summary(state, now))

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)
        self._spoke = time.monotonic()

    def close(self, state: RunState, result: Result | None) -> None:
        """The last state, and what came of the run."""
        if self._live is not None:
            self._live.stop()
            if state.trials and self._objective:
                rows, width = len(state.trials), self._console.width
                self._console.print(
                    trial_table(state, self._objective, self._max_epochs, rows, width)
                )
        elif self._objective:
            self._print_changes(state)
        if result is not None:
            self._console.print("\n".join(closing_lines(result)), markup=False, soft_wrap=True)

    def _summary(self, state: RunState, now: float) -> str:
        assert self._objective is not None
        return summary(state, self._objective, self._trials, now, self._concurrent)

    def _print_changes(self, state: RunState) -> None:
        assert self._objective is not None
        for trial in state.trials.values():
            if trial.alive or trial.id in self._ended:
                continue
            self._ended.add(trial.id)
            self._line(_ending(trial, self._objective, self._max_epochs))
        best = state.best(self._objective)
        if best and not best[0].alive and best[0].id != self._best:
            self._best = best[0].id
            value = _value(best[0], self._objective)
            self._line(f"best so far: {value} by trial {best[0].id}")

    def _line(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, soft_wrap=True)
        self._spoke = time.monotonic()


def trial_table(
    state: RunState,
    objective: Objective,
    max_epochs: int,
    rows: int,
    width: int,
    jobs: bool = False,
) -> Table:
    """One row per trial: those that run first, then the newest; at most `rows`, at least 3.

    width: columns of the terminal; as many parameters are shown as fit. jobs: show the platform's
    job ids too.
    """
    for parameters in range(_MAX_PARAMETERS, 0, -1):
        table = _trial_table(state, objective, max_epochs, rows, parameters, jobs)
        if _needed(table) <= width:
            return table
    return _trial_table(state, objective, max_epochs, rows, 0, jobs)


def _needed(table: Table) -> int:
    """The width at which no cell is cut."""
    console = Console(width=_WIDEST)
    return Measurement.get(console, console.options, table).maximum


def _trial_table(
    state: RunState,
    objective: Objective,
    max_epochs: int,
    rows: int,
    parameters: int,
    jobs: bool,
) -> Table:
    best = state.best(objective)
    best_id = best[0].id if best else None
    names = _telling_parameters(state, parameters)
    table = Table(box=None, pad_edge=False, header_style="bold")
    headers = ["trial", *(["job"] if jobs else []), "state", "epoch", objective.metric]
    for header in [*headers, *(_short(n) for n in names)]:
        table.add_column(header, justify="left" if header in ("trial", "job", "state") else "right")
    trials = sorted(
        state.trials.values(), key=lambda t: (not _active(t), t.id != best_id, -int(t.id))
    )
    shown = sorted(trials[: max(rows, 3)], key=lambda t: t.id)
    for trial in shown:
        mark = " *" if trial.id == best_id else ""
        table.add_row(
            f"{trial.id}{mark}",
            *([trial.jobs[-1].id if trial.jobs else "-"] if jobs else []),
            Text(_state_text(trial), style=_STYLES.get(trial.status, "")),
            f"{trial.last_epoch}/{max_epochs}",
            _value(trial, objective),
            *(_shown(trial.config.get(name)) for name in names),
            style="bold" if mark else "",
        )
    hidden = len(state.trials) - len(shown)
    if hidden > 0:
        table.add_row(f"+ {hidden} more")
    return table


def summary(state: RunState, objective: Objective, trials: int, now: float, concurrent: int) -> str:
    """One line: how far, the best so far, elapsed, ETA."""
    ended = sum(not t.alive for t in state.trials.values())
    running = sum(_active(t) for t in state.trials.values())
    paused = sum(t.status == PAUSED for t in state.trials.values())
    failed = sum(t.status == TrialStatus.FAILED.value for t in state.trials.values())
    parts = [f"{ended}/{trials} trials ended"]
    parts += [f"{running} running"] if running else []
    parts += [f"{paused} paused"] if paused else []
    parts += [f"{failed} failed"] if failed else []
    best = state.best(objective)
    parts.append(
        f"best {objective.metric} {_value(best[0], objective)} (trial {best[0].id})"
        if best
        else "no result yet"
    )
    if state.ledger.machines:
        parts.append(state.ledger.shown(now))
    parts.append(f"elapsed {duration(state.elapsed(now))}")
    if state.ended is not None or ended >= trials:
        return " | ".join(parts)
    remaining = eta(state, trials, now, concurrent)
    parts.append(f"ETA {duration(remaining)}" if remaining is not None else "ETA unknown")
    return " | ".join(parts)


def eta(state: RunState, trials: int, now: float, concurrent: int) -> float | None:
    """Seconds until all trials have ended, from the mean time of those that have; None if none."""
    times = [t.ended - t.proposed for t in state.trials.values() if t.ended is not None]
    if not times:
        return None
    mean = sum(times) / len(times)
    running = [now - t.proposed for t in state.trials.values() if _active(t)]
    left = sum(max(mean - spent, 0.0) for spent in running)
    left += mean * max(trials - len(state.trials), 0)
    return left / max(min(concurrent, trials), 1)


def closing_lines(result: Result) -> list[str]:
    """What a user is told at the end."""
    lines = ["", f"{result.status}{': ' + result.reason if result.reason else ''}"]
    best, objective = result.best, result.data["objective"]
    if best:
        lines.append(
            f"best {objective['metric']}: {best['metric']:.6g} "
            f"(trial {best['trial']}, epoch {best['epoch']})"
        )
        if best["trial"] == "0000":
            lines.append("the network's defaults (trial 0) were not improved upon")
        elif best["improvement"] is not None:
            lines.append(
                f"improvement over trial 0 (the network's defaults): {best['improvement']:+.4g} "
                f"from {best['trial_0_metric']:.6g}"
            )
        lines += [f"  {name}: {_shown(value)}" for name, value in best["hyperparameters"].items()]
        lines += _evaluation_lines(result.data)
        if best["checkpoint"]:
            lines.append(f"checkpoint: {best['checkpoint']['path']}")
        lines.append(f"best spec: {result.run_dir / 'best_spec.yaml'}")
    for failure in result.data["failures"]:
        lines.append(
            f"{failure['count']} failed: {failure['cause']} ({', '.join(failure['trials'][:6])}"
            f"{', ...' if len(failure['trials']) > 6 else ''})"
        )
        lines.append(f"  {failure['message']}")
        lines.append(f"  -> {failure['remedy']}")
    lines.append(_spent_line(result.data))
    lines.append(f"result: {result.run_dir / 'result.json'}")
    if result.data["run"]["resumable"]:
        lines.append(f"go on with: tao-ray resume {result.run_dir}")
    return lines


def _spent_line(data: Mapping[str, Any]) -> str:
    """How long it took and what it cost, if anything."""
    line, cost = f"time: {duration(data['timing']['elapsed_s'])}", data["cost"]
    if cost is None:
        return line
    return f"{line}; cost: {cost['usd']:.2f} USD for {cost['machine_hours']:.2f} machine hours"


def _evaluation_lines(data: Mapping[str, Any]) -> list[str]:
    """The final evaluation and how it compares with the baseline."""
    final = data.get("final_evaluation")
    if not final:
        return []
    if final.get("metric") is None:
        return [f"final evaluation: {final['status']}: {final['reason']}"]
    line = f"final evaluation: {final['metric_name']} = {final['metric']:.6g}"
    if final.get("delta") is not None:
        line += f", {final['delta']:+.4g} from the baseline's {final['baseline']:.6g}"
    return [line]


def best_lines(state: RunState, objective: Objective) -> list[str]:
    """The best trial so far with all its hyperparameters; nothing if there is none."""
    best = state.best(objective)
    if best is None:
        return []
    trial, judged = best
    what = "best so far" if state.ended is None else "best"
    head = f"{what}: {objective.metric} = {_value(trial, objective)} (trial {trial.id}, "
    lines = [f"{head}epoch {judged.epoch})"]
    return lines + [f"  {name}: {_shown(value)}" for name, value in trial.config.items()]


def evaluation_lines(state: RunState) -> list[str]:
    """Baseline and final evaluation, as far as they are known."""
    lines = []
    for name, shown in (("baseline", "baseline"), ("final", "final evaluation")):
        record = state.evaluations.get(name)
        if record is None:
            continue
        if record.get("metric") is None:
            reason = f": {record['reason']}" if record.get("reason") else ""
            lines.append(f"{shown}: {record['status']}{reason}")
            continue
        line = f"{shown}: {record['metric_name']} = {record['metric']:.6g}"
        if record.get("delta") is not None:
            line += f", {record['delta']:+.4g} from the baseline's {record['baseline']:.6g}"
        lines.append(line)
    return lines


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _active(trial: TrialState) -> bool:
    return trial.alive and trial.status != PAUSED


def _state_text(trial: TrialState) -> str:
    if trial.failure:
        return f"failed ({trial.failure.kind.value})"
    if trial.status == PENDING or (trial.status == RUNNING and trial.jobs[-1].launched is None):
        return "starting"
    return trial.status


def _value(trial: TrialState, objective: Objective) -> str:
    judged = trial.judged(objective.at)
    if judged is None or judged.loss is None:
        return "-"
    return f"{objective.value(judged.loss):.5g}"


def _ending(trial: TrialState, objective: Objective, max_epochs: int) -> str:
    text = f"trial {trial.id} {trial.status} at epoch {trial.last_epoch}/{max_epochs}"
    if trial.failure:
        return f"{text}: {trial.failure.kind.cause} - {trial.failure.message}"
    return f"{text}: {objective.metric} = {_value(trial, objective)}"


def _telling_parameters(state: RunState, count: int) -> list[str]:
    """The parameters to show: those that take the most different values, in their own order."""
    configs = [t.config for t in state.trials.values()]
    if not configs:
        return []
    names = list(configs[0])
    values = {name: len({repr(c.get(name)) for c in configs}) for name in names}
    chosen = sorted(names, key=lambda n: -values[n])[:count]
    return [name for name in names if name in chosen]


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def as_json(state: RunState, objective: Objective, facts: Mapping[str, Any], now: float) -> Any:
    """The state of a run for `tao-ray status --json`."""
    best = state.best(objective)
    remaining = eta(state, facts["trials"], now, facts["max_concurrent"])
    return {
        "status": state.status,
        **{k: facts[k] for k in ("network", "action", "algorithm", "metric", "direction", "at")},
        "elapsed_s": state.elapsed(now if state.ended is None else state.ended),
        "eta_s": remaining if state.ended is None else 0.0,
        "best": None if best is None else _trial_json(best[0], objective),
        "baseline": state.evaluations.get("baseline"),
        "final_evaluation": state.evaluations.get("final"),
        "trials": [_trial_json(t, objective) for t in state.trials.values()],
    }


def _trial_json(trial: TrialState, objective: Objective) -> dict[str, Any]:
    judged = trial.judged(objective.at)
    return {
        "id": trial.id,
        "job": trial.jobs[-1].id if trial.jobs else None,
        "state": _state_text(trial),
        "epoch": trial.last_epoch,
        "metric": None if judged is None or judged.loss is None else objective.value(judged.loss),
        "hyperparameters": dict(trial.config),
        "failure": trial.failure.to_json() if trial.failure else None,
    }

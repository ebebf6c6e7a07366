"""The section about time and cost: who ran when, how busy the machines were, what was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from tao_ray.report.document import Block, Figure, Section, Table, Text, code
from tao_ray.report.machines import machine_costs
from tao_ray.report.run_data import RunData
from tao_ray.report.text import count, duration, megabytes
from tao_ray.report.timeline import Bar, slots_used, timeline, timeline_bars


def time_and_cost(run: RunData) -> Section:
    """Who ran when, how busy the slots were, what it cost."""
    bars = timeline_bars(run)
    blocks: list[Block] = []
    if bars:
        blocks += [
            Figure(
                "Timeline",
                partial(timeline, run, bars),
                "A bar is a job, numbered by its trial. Blue: completed; grey: stopped early; "
                "red: failed; amber: paused; green: running; violet: an evaluation; outlined: the "
                "best trial. " + (_RENTED_LANES if run.rented else _LANES),
            ),
            Text(_pace(run, bars)),
        ]
    if run.rented:
        blocks += machine_costs(run)
    else:
        blocks.append(
            Text("Cost: not metered, since no price of these machines is known.", small=True)
        )
    retention = (run.result or {}).get("retention")
    if retention:
        blocks += _retention(retention)
    return Section("Time and cost", blocks)


_LANES = (
    "White is idle. Which slot a job had is not recorded: jobs are put in the first that was free."
)
_RENTED_LANES = (
    "A row is a slot of a machine, m1, m2, ...; pale: the machine is paid for, and no job has it. "
    "A job has its slot from when the machine is given to it until nothing of it runs there."
)


def _pace(run: RunData, bars: Sequence[Bar]) -> str:
    """How busy the slots were, and how long a job took to get going.

    On rented machines the first is said of the time that was paid for, beside its cost.
    """
    trained = [b.job for b in bars if not b.job.evaluates]
    parts = []
    if not run.rented:
        busy, slots = slots_used(run, bars)
        parts.append(
            f"Jobs had {busy:.0%} of the time of {count(slots, 'slot')}. The rest is start-up, "
            "waiting for decisions, and the end of the search, when slots run dry."
        )
    if run.rented and trained:
        waited = median(max(job.begin - job.asked, 0.0) for job in trained)
        parts.append(f"A training waited {duration(waited)} for a slot (median).")
    starts = [
        max(job.launched - (job.begin if run.rented else job.asked), 0.0)
        for job in trained
        if job.launched is not None
    ]
    if starts:
        parts.append(f"Starting it took {duration(median(starts))} (median).")
    return " ".join(parts)


def _retention(retention: Mapping[str, Any]) -> list[Block]:
    """What became of the checkpoints."""
    per_trial = retention["peak_bytes_per_trial"].values()
    text = (
        f"Checkpoints (`retention.mode: {retention['mode']}`): {len(retention['kept'])} kept, "
        f"{megabytes(retention['kept_bytes'])}; {retention['deleted_checkpoints']} deleted, "
        f"{megabytes(retention['deleted_bytes'])}. At most {megabytes(retention['peak_bytes'])} "
        f"at a time, {megabytes(max(per_trial, default=0))} of one trial."
    )
    rows = [
        [
            entry["trial"],
            "–" if entry["epoch"] is None else str(entry["epoch"]),
            megabytes(entry["bytes"]),
            entry["why"],
            code(entry["path"]),
        ]
        for entry in retention["kept"]
    ]
    blocks: list[Block] = [Text(text)]
    if rows:
        head = ["trial", "epoch", "size", "why it was kept", "checkpoint"]
        blocks.append(Table(head, rows, numeric=frozenset({1, 2})))
    return blocks

"""The baseline and final evaluation: what they found, on which data, and which gain to quote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tao_ray.network.tree import flatten
from tao_ray.report.document import Block, Card, Table, Text, code
from tao_ray.report.run_data import RunData
from tao_ray.report.text import listing, shown, signed

_OTHER_ACTIONS = {"evaluate", "inference", "export", "prune", "quantize", "gen_trt_engine"}
_UNSEEN = ("test", "infer", "calib")
_UNEVALUATED = {
    "baseline": "none. Gains are over trial 0, which trains with the network's default "
    "hyperparameters under the same conditions.",
    "final": "the winner's checkpoint was not evaluated again.",
}


def evaluation_cards(run: RunData) -> list[Card]:
    """The winner's checkpoint beside the baseline: the same metric, data and action."""
    baseline, final = (run.state.evaluations.get(name, {}) for name in ("baseline", "final"))
    cards = []
    if final.get("metric") is not None:
        detail = f"winner's checkpoint; {final['metric_name']}"
        cards.append(Card("final evaluation", shown(final["metric"], 5), detail))
    if final.get("improvement") is not None:
        detail = f"{shown(final['baseline'], 5)} → {shown(final['metric'], 5)}, both evaluated"
        cards.append(Card("gain over the baseline", signed(final["improvement"]), detail))
    elif baseline.get("metric") is not None:
        detail = f"{baseline.get('kind') or ''}; {baseline['metric_name']}"
        cards.append(Card("baseline", shown(baseline["metric"], 5), detail))
    return cards


def evaluations(run: RunData) -> list[Block]:
    """The evaluate jobs, side by side: what they found, or why there was none."""
    blocks: list[Block] = []
    if run.best is not None and run.phase != "running":
        blocks.append(Text(f"**Which gain to quote.** {_to_quote(run)}"))
    columns: dict[str, dict[str, str]] = {}
    for name, none in _UNEVALUATED.items():
        record = run.state.evaluations.get(name)
        what = f"{name.capitalize()} evaluation"
        if record is None:
            blocks.append(Text(f"{what}: {none}", small=True))
            continue
        told = [record["status"], record.get("reason"), record.get("note")]
        text = "; ".join(str(t) for t in told if t)
        if record.get("metric") is not None:
            text = f"{record['metric_name']} = {shown(record['metric'], 6)} ({text})"
        blocks.append(Text(f"{what}: {text}.", small=True))
        if record.get("metrics"):
            column = {key: shown(value, 6) for key, value in record["metrics"].items()}
            column |= {key: code(uri) for key, uri in (record.get("data") or {}).items()}
            if record.get("checkpoint"):
                column["checkpoint"] = _checkpoint(run, record)
            if record.get("job"):
                column["job"] = code(record["job"])
            columns[name] = column
    if columns:
        keys = dict.fromkeys(key for column in columns.values() for key in column)
        rows = [[key, *(column.get(key, "–") for column in columns.values())] for key in keys]
        blocks.append(Table(["evaluated", *columns], rows))
    return blocks


def _checkpoint(run: RunData, record: Mapping[str, Any]) -> str:
    """Where the evaluated checkpoint is now: that of a trial may have been copied, or deleted."""
    retention = (run.result or {}).get("retention")
    if retention is None or record.get("trial") is None:
        return code(record["checkpoint"])
    of_trial = [kept for kept in retention["kept"] if kept["trial"] == record["trial"]]
    name = record["checkpoint"].rpartition("/")[2]
    path = next((k["path"] for k in of_trial if k["path"].rpartition("/")[2] == name), None)
    if path is not None:
        return code(path)
    return f"trial {record['trial']}, epoch {record['epoch']}: {code(name)}, not kept"


def _to_quote(run: RunData) -> str:
    metric, final = code(run.objective.metric), run.state.evaluations.get("final", {})
    own = (
        f"Values of {metric}, in this report's plots and tables too, are the search's own. The "
        "winner was chosen by them, so its value and its gain over the defaults are optimistic."
    )
    if final.get("metric") is None:
        return f"{own} There is no final evaluation, so there is no fairer value to quote."
    measured = code(final["metric_name"])
    improvement = final.get("improvement")
    fair = f"the {measured} of the final evaluation, {shown(final['metric'], 5)}"
    if improvement is not None:
        fair = f"the gain in {measured} of the final evaluation, **{signed(improvement)}**"
    seen = selected_by(run)
    if seen:
        return (
            f"{own} The final evaluation used the same data{_data(final)}, so {measured} is as "
            "optimistic: before a gain is quoted, evaluate both checkpoints on data of their own."
        )
    if seen is False:
        return (
            f"{own} The final evaluation used other data, which the search did not select by"
            f"{_data(final)}: quote {fair}."
        )
    why = (
        "configuration names no data for it, so the network brings its own"
        if not final.get("data")
        else f"training names its data otherwise than the evaluation does{_data(final)}"
    )
    return (
        f"{own} Whether the final evaluation used other data cannot be told from the run: the "
        f"{why}. If it did, quote {fair}; if it did not, that is as optimistic."
    )


def _data(record: Mapping[str, Any]) -> str:
    """What it read, in brackets; "" where the network brings its own."""
    named = [f"{code(k)}: {code(uri)}" for k, uri in (record.get("data") or {}).items()]
    return f" ({listing(named, 3)})" if named else ""


def selected_by(run: RunData) -> bool | None:
    """Whether the final evaluation's data is the data the search selected by; None: unknown.

    The winner's spec names what its training and validation read. What that names for testing does
    not count, and a folder that holds the other's data, or lies in it, tells nothing.
    """
    final = run.state.evaluations.get("final", {})
    if any(trial.evaluation for trial in run.trials):
        return True  # every trial was judged by the same evaluate job
    evaluated = set((final.get("data") or {}).values())
    best = (run.result or {}).get("best")
    if not evaluated or not best:
        return None
    names = flatten(best["spec"]).items()
    read = {text for key, value in names if _reads(key) for text in _texts(value)}
    if evaluated <= read:
        return True
    apart = not any(_overlap(one, other) for one in evaluated for other in read)
    return False if read and apart else None


def _reads(key: str) -> bool:
    first, *parts = key.split(".")
    return first not in _OTHER_ACTIONS and not any(part.startswith(_UNSEEN) for part in parts)


def _texts(value: Any) -> Iterator[str]:
    """The paths and URIs in a leaf of a spec."""
    if isinstance(value, str) and (value.startswith("/") or "://" in value):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _overlap(one: str, other: str) -> bool:
    a, b = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return a.startswith(b) or b.startswith(a)

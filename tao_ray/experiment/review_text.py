"""A review in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tao_ray.config import LocalPlatformConfig
from tao_ray.experiment.data_checks import sources
from tao_ray.experiment.estimate import Estimate
from tao_ray.experiment.evaluation import CHECKPOINT, SKIPPED, TRAIN, baseline_kind
from tao_ray.experiment.measure import Measure, Unmeasurable, find_measure
from tao_ray.experiment.plan import Plan
from tao_ray.experiment.result import search_space
from tao_ray.experiment.review import FirstTrial, Review
from tao_ray.experiment.run_dir import is_uri
from tao_ray.platforms.base import HasPrices
from tao_ray.report.text import count

if TYPE_CHECKING:
    from tao_ray.config import PlatformConfig


def summary(review: Review) -> list[str]:
    """A few lines, for a log."""
    plan, objective = review.plan, review.plan.objective
    return [
        f"{plan.network.name} {plan.network.action.name}: {objective.direction} "
        f"{objective.metric}; {plan.config.search.algorithm}, {_amount(plan)}, "
        f"{count(len(plan.derived.space), 'parameter')}",
        f"time: {_time_text(review.estimate)}",
        *([f"cost: {_cost_text(review)}"] if isinstance(review.platform, HasPrices) else ()),
        f"baseline: {_baseline_text(review)}",
        f"final evaluation: {_final_text(plan)}",
        f"retention: {_retention_text(plan)}",
    ]


def markdown(review: Review) -> str:
    """The whole review."""
    return "\n".join(_document(review)) + "\n"


def _document(review: Review) -> Iterator[str]:
    plan, config = review.plan, review.plan.config
    network, objective, search = plan.network, plan.objective, config.search
    yield f"# Review: {config.name}"
    yield from _section("What runs")
    kind = config.platform.kind if config.platform else "local"
    shape = _shape(config.platform)
    unused = network.image and isinstance(config.platform, LocalPlatformConfig)
    image = network.image or "none"
    yield from _items(
        ("network", f"{network.name}, action `{network.action.name}`"),
        ("package", str(network.package.directory) if network.package else "none: a bare command"),
        ("command", f"`{network.command_text}`"),
        ("platform", f"{kind}, {_gpus(review.gpus)} per trial{shape}"),
        ("image", f"{image}, not used on this platform" if unused else image),
        ("price", _price_text(review)),
        ("starting weights", config.model.checkpoint or "none: training from scratch"),
        ("results", _results_text(review)),
    )
    yield from _section("Data")
    package_format = network.package.data_format if network.package else None
    yield f"Format: {config.data.format or package_format or 'not stated'}. " + _samples(plan)
    yield ""
    yield from _table(("spec key", "source"), [(s.key, s.uri) for s in sources(config, network)])
    yield from _section("Search")
    yield from _items(
        ("algorithm", f"{search.algorithm}. {plan.algorithm().why}".strip()),
        ("budget", _amount(plan)),
        ("at a time", str(plan.settings.max_concurrent)),
        ("seed", str(search.seed)),
        ("objective", f"{objective.direction} `{objective.metric}`"),
        ("judged by", _judged_text(plan)),
        ("decision epochs", _decision_text(plan)),
    )
    yield from _space(plan)
    yield from _section("First trials")
    for trial in review.first:
        yield from _first(trial, review.plan)
    yield from _section("Time and cost")
    yield from _items(
        ("one trial", _duration(review.estimate.trial_s)),
        ("search", _time_text(review.estimate)),
        ("cost", _cost_text(review)),
        ("basis", review.estimate.basis),
    )
    yield from _section("Evaluation")
    yield from _items(("baseline", _baseline_text(review)), ("final evaluation", _final_text(plan)))
    if config.objective.accept_proxy:
        yield "\n`objective.accept_proxy: true`: the winner may not be judged by the network's own"
        yield "measure, and this was accepted."
    yield from _section("Retention")
    yield _retention_text(plan)
    remarks = [*(f"{c.name}: {c.detail}" for c in review.warnings), *network.notes]
    remarks += plan.derived.warnings
    if remarks:
        yield from _section("Remarks")
        yield from (f"- {remark}" for remark in remarks)


def _gpus(count: int) -> str:
    return "no GPU" if not count else f"{count} GPU{'s' if count > 1 else ''}"


def _shape(platform: PlatformConfig | None) -> str:
    """What else was said of the platform, such as the machine's type; not its environment."""
    given = platform.model_dump(exclude={"kind", "env"}, exclude_defaults=True) if platform else {}
    return "".join(f", {key}: {value}" for key, value in given.items())


def _space(plan: Plan) -> Iterator[str]:
    yield from _section("Searched parameters")
    rows = []
    for parameter in search_space(plan):
        rows.append(
            (
                f"`{parameter['name']}`",
                range_text(parameter),
                f"{parameter['default']}",
                f"{parameter['origin']}",
            )
        )
    yield from _table(("parameter", "range", "default", "where it comes from"), rows)
    if plan.derived.left_out:
        yield "\nLeft out:\n"
        yield from (f"- `{name}`: {why}" for name, why in plan.derived.left_out.items())


def range_text(parameter: Mapping[str, Any]) -> str:
    """Range or options of one parameter, as `search_space` describes it, in words."""
    for key in ("options", "values"):
        if parameter.get(key) is not None:
            return "one of " + ", ".join(map(str, parameter[key]))
    text = f"{parameter.get('low'):g} to {parameter.get('high'):g}"
    if parameter.get("step"):
        text += f" in steps of {parameter['step']:g}"
    return f"{text}, log scale" if parameter.get("log") else text


def _first(trial: FirstTrial, plan: Plan) -> Iterator[str]:
    what = " (the network's defaults)" if trial.config == plan.derived.space.defaults() else ""
    yield f"\n### Trial {trial.id}{what}\n"
    yield from (f"- `{name}`: {value}" for name, value in trial.config.items())
    for change in trial.adjustments:
        yield f"- adjusted: `{change.key}` {change.asked} -> {change.used}: {change.reason}"
    yield f"\n```{plan.network.config_format}\n{trial.spec.rstrip()}\n```"


def _results_text(review: Review) -> str:
    place = str(review.where or review.results_root)
    stored = review.plan.config.results
    return f"{place}; at the end in {stored}" if is_uri(stored) else place


def _judged_text(plan: Plan) -> str:
    at = plan.objective.at
    if plan.evaluation is None:
        return f"the {at} epoch of a trial"
    guide = plan.evaluation.guide
    which = f"{at} epoch by `{guide.metric}`" if guide else "last epoch"
    return f"an evaluate job of each trial, on the checkpoint of its {which}"


def _decision_text(plan: Plan) -> str:
    epochs = ", ".join(map(str, plan.algorithm().rule.milestones()))
    if not epochs:
        return "none"
    guide = plan.evaluation.guide if plan.evaluation else None
    return f"{epochs}, by `{guide.metric}` of the training" if guide else epochs


def _amount(plan: Plan) -> str:
    trials = count(plan.settings.trials, "trial")
    return trials + ("" if plan.single_shot else f" of up to {count(plan.max_epochs, 'epoch')}")


def _samples(plan: Plan) -> str:
    if plan.train_sample_count is None:
        return "The number of training samples is not known."
    origin = "configured" if plan.config.data.train_sample_count else "counted"
    return f"{plan.train_sample_count} training samples ({origin}); batch sizes are capped to it."


def _price_text(review: Review) -> str:
    if not isinstance(review.platform, HasPrices):
        return "free"
    price = review.estimate.price
    return "not known" if price is None else f"{price:.2f} USD per hour for all machines at once"


def _cost_text(review: Review) -> str:
    if not isinstance(review.platform, HasPrices):
        return "free"
    usd = review.estimate.usd
    return "unknown" if usd is None else f"at most {usd:.2f} USD"


def _time_text(found: Estimate) -> str:
    if found.wall_s is None:
        return f"unknown: {found.basis}"
    return f"at most {_duration(found.wall_s)}, if every trial trains to its end"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _baseline_text(review: Review) -> str:
    record, plan = review.baseline or {}, review.plan
    if record.get("metric") is not None:
        return (
            f"{record['metric_name']} = {record['metric']:.6g} (job {record['job']}, "
            f"{record['record']})"
        )
    kind, measure = baseline_kind(plan), find_measure(plan)
    if kind == SKIPPED:
        return "none (baseline: skip)"
    if kind == TRAIN:
        return "a training with the network's defaults, before the search"
    if kind == CHECKPOINT:
        if isinstance(measure, Unmeasurable):
            return f"not applicable: {measure.reason}"
        return f"{_measured(measure)} of {plan.config.model.checkpoint}, before the search"
    return "trial 0, the network's defaults, as the training starts from scratch"


def _final_text(plan: Plan) -> str:
    measure = find_measure(plan)
    if isinstance(measure, Unmeasurable):
        return f"not applicable: {measure.reason}"
    return f"{_measured(measure)} of the winner's checkpoint, in evaluations/final.json"


def _measured(measure: Measure) -> str:
    data = ", ".join(f"{key}: {uri}" for key, uri in measure.data.items())
    return f"{measure.objective.metric} by {measure.network.action.name}" + (
        f" on {data}" if data else ""
    )


def _retention_text(plan: Plan) -> str:
    retention = plan.config.retention
    if retention.mode == "manual":
        return (
            "Nothing is deleted (`retention.mode: manual`): every checkpoint of every trial stays."
        )
    few = "The winner's checkpoint stays"
    if retention.keep > 1:
        few = f"The checkpoints of the best {retention.keep} trials stay"
    return f"{few}. Other checkpoints are deleted as soon as nothing can need them any more."


def _section(title: str) -> Iterator[str]:
    yield f"\n## {title}\n"


def _items(*pairs: tuple[str, str]) -> Iterator[str]:
    yield from (f"- **{name}**: {text}" for name, text in pairs)


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        yield "None: the network brings its own."
        return
    yield f"| {' | '.join(headers)} |"
    yield f"|{'---|' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"

"""Everything that must hold before the first job, checked in one go."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tao_ray.config import BrevPlatformConfig, ContainerPlatformConfig, LocalPlatformConfig
from tao_ray.errors import TaoRayError
from tao_ray.experiment.data_checks import data_checks
from tao_ray.experiment.measure import objective_checks
from tao_ray.experiment.plan import Plan, make_plan
from tao_ray.experiment.publish import bucket_checks
from tao_ray.experiment.run_dir import results_root
from tao_ray.network.spec import build_spec
from tao_ray.platforms import open_platform
from tao_ray.platforms.base import Check, Platform
from tao_ray.tracking.opening import check_tracking

if TYPE_CHECKING:
    from tao_ray.config import RunConfig
    from tao_ray.network.network import Network

_RECORDS_FREE = 1 << 30


class PreflightError(TaoRayError):
    """Something that must hold before a run does not."""


@dataclass(frozen=True)
class Preflight:
    """What was found. plan: None if the configuration comes to none."""

    checks: tuple[Check, ...]
    plan: Plan | None = None

    @property
    def problems(self) -> list[Check]:
        """What a run may not start with."""
        return [c for c in self.checks if not c.ok and not c.warning]

    @property
    def warnings(self) -> list[Check]:
        """What a run may start with, and its user should know."""
        return [c for c in self.checks if not c.ok and c.warning]


def preflight(
    config: RunConfig,
    counted_samples: int | None = None,
    *,
    count: bool = True,
    root: Path | None = None,
) -> Preflight:
    """Check everything, whatever fails. Touches nothing but the results directory.

    counted_samples: the size of the training set if it was counted before. count: plan with the
    size that is counted now, if neither the configuration nor an earlier count says it. root: of
    the run directories; by default as the configuration says, seen from here.
    """
    checks: list[Check] = []
    plan: Plan | None = None
    try:
        plan = make_plan(config, counted_samples)
    except TaoRayError as error:
        where = f"{error.where}: " if error.where else ""
        checks.append(Check("configuration", False, where + error.message, error.remedy or ""))
    root = root or results_root(config.results)
    platform, gpus = _open_platform(config, root, checks)
    if plan is not None:
        checks += network_checks(config, plan.network)
        checks += objective_checks(plan)
    if platform is not None:
        checks += platform.preflight()
        platform.close()
    checks += results_checks(root)
    checks += bucket_checks(config)
    checks += _tracking_checks(config)
    if plan is not None:
        found, samples = data_checks(config, plan.network, platform)
        checks += found
        if count and plan.train_sample_count is None and samples is not None:
            plan = make_plan(config, samples)
        checks += _batch_checks(plan, gpus)
    return Preflight(tuple(checks), plan)


def _open_platform(
    config: RunConfig, root: Path, checks: list[Check]
) -> tuple[Platform | None, int]:
    """The platform and a trial's GPUs, or None and a failed check."""
    try:
        concurrent, hours = config.search.max_concurrent, config.budget.hours
        return open_platform(config.platform, root, concurrent, hours=hours)
    except TaoRayError as error:
        checks.append(Check("platform", False, error.message, error.remedy or ""))
        return None, 0


def network_checks(config: RunConfig, network: Network) -> list[Check]:
    """Package, image, command and credentials of one action."""
    package = network.package
    what = f"{network.name}, action {network.action.name}"
    what += f" ({package.directory})" if package else ""
    return [
        Check("package" if package else "network", True, what),
        _image(config, network),
        *_command(config, network),
        *_credentials(config, network),
        *_conversion(network),
    ]


def _image(config: RunConfig, network: Network) -> Check:
    if network.image is None:
        return Check("image", True, "none: the command runs on the host")
    origin = "model.image"
    if config.model.image not in (None, network.image):
        origin = f"model.image: {config.model.image}"
    elif config.model.image is None:
        backend = f", backend {network.backend}" if network.backend else ""
        origin = f"the package's{backend}"
    bare = isinstance(config.platform, LocalPlatformConfig)
    unused = "; not used here: the command runs on this host" if bare else ""
    return Check("image", True, f"{network.image} ({origin}{unused})")


def _command(config: RunConfig, network: Network) -> Iterator[Check]:
    """Whether the network's program is found where the command will look for it."""
    platform = config.platform
    if platform is not None and not isinstance(platform, LocalPlatformConfig):
        return  # it is in the image, or on another machine
    words = network.command_text.split()
    if not words or not re.fullmatch(r"[\w./+-]+", words[0]):
        return  # shell text of its own; only running it would tell
    activate = platform.activate if platform else None
    if activate and not os.path.isfile(activate):
        return  # the platform's own checks say so
    source = f". {shlex.quote(activate)} && " if activate else ""
    path = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{source}command -v {words[0]}"],
        env={**os.environ, "PATH": path, **(platform.env if platform else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    found = done.stdout.strip()
    yield Check(
        "command",
        done.returncode == 0,
        found or f"{words[0]} is not found on this machine",
        ""
        if done.returncode == 0
        else f"set platform.activate to an environment in which {words[0]} is installed",
    )


def _credentials(config: RunConfig, network: Network) -> Iterator[Check]:
    """Environment variables by presence; their values are not looked at."""
    by_exec = isinstance(config.platform, BrevPlatformConfig) and config.platform.link == "exec"
    if network.secrets and by_exec:
        keys = ", ".join(network.secrets)
        remedy = "use platform.link: ssh, or leave out model.key"
        yield Check("model.key", False, f"{keys}: `brev exec` would show it", remedy)
    if _is_rented(config) and (network.image or "").startswith("nvcr.io/"):
        there = bool(os.environ.get("NGC_KEY") or os.environ.get("NGC_API_KEY"))
        text = "the login to nvcr.io, for the image"
        remedy = "" if there else "export NGC_KEY=..., unless the image is open to all"
        yield Check("variable NGC_KEY", there, text, remedy, warning=True)
    if network.package is None:
        return
    for name in network.package.required_credentials:
        remedy = _what_is_missing(config, name)
        yield Check(f"variable {name}", not remedy, "required by the package", remedy)
    for name, condition in network.package.conditional_credentials.items():
        remedy = _what_is_missing(config, name)
        yield Check(f"variable {name}", not remedy, str(condition), remedy, warning=True)


def _is_rented(config: RunConfig) -> bool:
    """Machines are new, so nothing that was set up on them by hand is there."""
    platform = config.platform
    return isinstance(platform, BrevPlatformConfig) and platform.instance is None


def _what_is_missing(config: RunConfig, name: str) -> str:
    """What to do so that jobs have this variable; "" if they do."""
    platform = config.platform
    if platform is not None and name in platform.env:
        return ""
    passed = not isinstance(platform, ContainerPlatformConfig) or name in platform.pass_env
    wanted = [] if os.environ.get(name) else [f"export {name}=..."]
    wanted += [] if passed else [f"add {name} to platform.pass_env"]
    return ", and ".join(wanted)


def _conversion(network: Network) -> Iterator[Check]:
    package = network.package
    if package is not None and network.conventions.dataset_convert_required:
        yield Check(
            "conversion",
            False,
            f"{package.name} reads data that its action dataset_convert has made",
            "tao-ray run CONFIG --action dataset_convert, unless that was done",
            warning=True,
        )


def _tracking_checks(config: RunConfig) -> list[Check]:
    try:
        check_tracking(config.tracking)
    except TaoRayError as error:
        return [Check("tracking", False, error.message, error.remedy or "")]
    return []


def results_checks(root: Path) -> list[Check]:
    """Where the run directory will be."""
    there = next(p for p in (root, *root.parents) if p.exists())
    remedy = "set `results` to a directory you can write to"
    if not there.is_dir():
        return [Check("results", False, f"{there} is not a directory", remedy)]
    if not os.access(there, os.W_OK):
        return [Check("results", False, f"{there} may not be written to", remedy)]
    free = shutil.disk_usage(there).free
    return [
        Check(
            "results",
            free >= _RECORDS_FREE,
            f"{root}, {free / 2**30:.0f} GiB free",
            "" if free >= _RECORDS_FREE else f"free some space at {there}",
        )
    ]


def _batch_checks(plan: Plan, gpus: int) -> Iterator[Check]:
    """What the number of samples means for batch sizes."""
    samples = plan.train_sample_count
    if samples is None:
        return
    origin = "configured" if plan.config.data.train_sample_count else "counted"
    text = f"{samples} training samples ({origin}) over {max(gpus, 1)} process(es)"
    try:
        spec = build_spec(
            plan.network,
            plan.derived.space.defaults(),
            results_dir="/results",
            num_epochs=plan.epochs,
            gpus=gpus,
            train_sample_count=samples,
        )
    except TaoRayError as error:
        yield Check("batch size", False, f"{text}: {error.message}", "use fewer GPUs or more data")
        return
    keys = plan.network.conventions.batch_size_keys
    capped = [f"{a.key} {a.asked} -> {a.used}" for a in spec.adjustments if a.key in keys]
    yield Check("batch size", True, f"{text}{': ' if capped else ''}{', '.join(capped)}")


def show(checks: tuple[Check, ...], console: Console) -> None:
    """One table, then each remedy on a line of its own, to be copied."""
    _print(checks, console)
    for check in checks:
        if not check.ok and check.remedy:
            console.print(f"{check.name} -> {check.remedy}", markup=False, soft_wrap=True)


def _print(checks: tuple[Check, ...], console: Console) -> None:
    """The table, folded to a terminal's width; in a file a line per check."""
    if console.is_terminal:
        console.print(_table(checks))
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        line = f"{_mark(check).plain:<6}  {check.name:<{width}}  {check.detail}".rstrip()
        console.print(line, markup=False, soft_wrap=True)


def _table(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("", "check", "finding"):
        table.add_column(header, overflow="fold")
    for check in checks:
        table.add_row(_mark(check), Text(check.name), Text(check.detail))
    return table


def _mark(check: Check) -> Text:
    if check.ok:
        return Text("ok", style="green")
    return Text("note", style="yellow") if check.warning else Text("FAILED", style="bold red")


def require(found: Preflight, console: Console) -> Plan:
    """The plan of a run that may start; see `require_ok`."""
    require_ok(found, console)
    assert found.plan is not None
    return found.plan


def require_ok(found: Preflight, console: Console) -> None:
    """Shows the table and raises PreflightError if a run may not start."""
    problems = found.problems
    if problems:
        _print(found.checks, console)
        listed = [f"  {c.name}: {c.detail}" + _then(c.remedy) for c in problems]
        raise PreflightError(
            "\n".join([f"{len(problems)} of {len(found.checks)} checks failed:", *listed])
        )


def _then(remedy: str) -> str:
    return f"\n    -> {remedy}" if remedy else ""


def install_missing(found: Preflight, console: Console, ask: Callable[[str], bool]) -> bool:
    """Run the remedies that are commands, after a question. Whether any was run."""
    commands = [c.remedy for c in found.checks if not c.ok and c.runnable and c.remedy]
    if not commands:
        console.print("no remedy is a command that can be run from here")
        return False
    for command in commands:
        console.print(f"  {command}", markup=False, soft_wrap=True)
    if not ask(f"Run {'this command' if len(commands) == 1 else 'these commands'}?"):
        return False
    for command in commands:
        console.print(f"$ {command}", markup=False, soft_wrap=True)
        code = subprocess.run(command, shell=True, check=False).returncode
        if code:
            raise PreflightError(f"exit code {code}", where=command, remedy="run it by hand")
    return True

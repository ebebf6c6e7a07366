"""Platform ``brev``: GPU machines rented from Brev, with Docker or plain processes on them."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from tao_ray.errors import TaoRayError
from tao_ray.files import write_text
from tao_ray.journal import FILE_NAME, JournalWriter
from tao_ray.platforms.base import Check
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import BrevError
from tao_ray.platforms.brev.reaping import start_reaper
from tao_ray.platforms.brev.records import InstanceType
from tao_ray.platforms.brev.spec import BrevSpec, pool_settings
from tao_ray.platforms.brev.steps import Times
from tao_ray.platforms.brev.types import TypeRequest, choose_types
from tao_ray.platforms.kept import KeptFiles
from tao_ray.platforms.machine import Engine
from tao_ray.platforms.reaper import ReaperSpec
from tao_ray.platforms.rented import RentedPlatform
from tao_ray.storage import open_storage

if TYPE_CHECKING:
    from tao_ray.config import BrevPlatformConfig

_SHORT_TIMEOUT_S = 600.0
_A_DAY_H = 24.0
POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class BrevPlatform(RentedPlatform):
    """See `RentedPlatform`. engine: made with its root on the machines. directory: the run's own,
    or any other before there is one. findings: checks that were made already. hours: the longest
    the run may take, None: not known.

    The types and prices are chosen once and written into the directory by `rent`: a resumed run
    goes on at the prices that were reviewed.
    """

    def __init__(
        self,
        config: BrevPlatformConfig,
        engine: Callable[[str], Engine],
        directory: Path,
        max_concurrent: int,
        findings: Sequence[Check] = (),
        hours: float | None = None,
    ):
        self._config = config
        self._hours = hours
        self._findings = tuple(findings)
        self._directory = directory.absolute()
        self._offers: tuple[InstanceType, ...] | None = _read_offers(self._directory)
        run = f"{self._directory.parent.name}/{self._directory.name}"
        options = {
            "cloud-cred-id": config.cloud_cred_id,
            "workspace-group-id": config.workspace_group_id,
        }
        # Runs whose machine is the user's own must not meet each other there.
        place = hashlib.sha256(str(self._directory).encode()).hexdigest()[:8]
        root = f"{config.directory}/{self._directory.name}-{place}"
        on_machines = engine(root)
        spec = BrevSpec(
            run=run,
            directory=self._directory,
            settings=pool_settings(config, max_concurrent),
            offers=self._offers or (),
            times=_times(config),
            org=config.org,
            options=tuple((flag, value) for flag, value in options.items() if value),
            engine=on_machines,
            link=config.link,
        )
        kept = KeptFiles(open_storage(str(self._directory / "kept")))
        super().__init__(spec, on_machines, root, kept, self._directory / FILE_NAME)

    def rent(self, journal: JournalWriter) -> None:
        """See `RentedPlatform.rent`; before anything can be made, the reaper watches."""
        assert isinstance(self._spec, BrevSpec)
        if self._config.instance is None:
            self._spec = BrevSpec(**{**vars(self._spec), "offers": self._chosen()})
            _write_offers(self._directory, self._chosen())
            start_reaper(
                ReaperSpec(
                    directory=str(self._directory),
                    run=self._spec.run,
                    grace_s=self._config.orphan_grace,
                    org=self._config.org,
                )
            )
        super().rent(journal)

    def price_per_hour(self, jobs: int) -> float | None:
        """What `jobs` jobs at a time cost, on machines of the type that is tried first."""
        if self._config.instance is not None:
            return None
        settings = self._spec.settings
        machines = min(settings.machines, math.ceil(jobs / settings.slots))
        return machines * self._chosen()[0].price_per_hour

    def _chosen(self) -> tuple[InstanceType, ...]:
        """The types to try. Raises NoTypeError, BrevError."""
        if self._offers is None:
            config, shape = self._config, self._spec.settings.shape
            types = (config.type,) if isinstance(config.type, str) else tuple(config.type or ())
            request = TypeRequest(
                gpu=config.gpu,
                gpus=shape.gpus,
                min_vram_gb=config.min_vram_gb,
                provider=config.provider,
                types=types,
                max_price_per_hour=config.max_price_per_hour,
                disk_gb=config.disk_gb,
            )
            self._offers = tuple(choose_types(BrevCli().search(), request, reviewed=True))
        return self._offers

    # -- preflight ------------------------------------------------------------------------------

    def preflight(self) -> list[Check]:
        cli = BrevCli()
        checks = [_checked("brev", lambda: _version(cli))]
        if not checks[0].ok:
            return checks
        checks.append(_checked("brev login", lambda: _login(cli, self._config.org)))
        if self._config.instance is None:
            checks.append(_checked("brev types", lambda: self._types_text()))
            checks += [_checked("brev create", lambda: _flags(cli, self._spec))]
        if checks[1].ok:
            checks.append(_checked("brev ssh", lambda: _ssh_key(cli)))
            checks += _session(cli, self._hours)
        checks += _pod()
        checks += [
            Check(
                f"platform.{key}",
                False,
                f"{value:g} s is short: machines and images often take longer",
                f"raise it to {_SHORT_TIMEOUT_S:g} or more",
                warning=True,
            )
            for key, value in (
                ("ready_timeout", self._config.ready_timeout),
                ("pull_timeout", self._config.pull_timeout),
            )
            if value < _SHORT_TIMEOUT_S
        ]
        checks += self._findings
        return checks

    def _types_text(self) -> str:
        offers = self._chosen()
        return "in this order: " + ", ".join(
            f"{offer.type} ({offer.gpu_count}x {offer.gpu_name}, {offer.provider}, "
            f"{offer.price_per_hour:.2f} USD/h)"
            for offer in offers
        )


def _times(config: BrevPlatformConfig) -> Times:
    poll = min(5.0, config.ready_timeout / 20)
    return Times(ready=config.ready_timeout, poll=poll, confirm=min(2.0, poll))


def _checked(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name, True, find())
    except TaoRayError as error:
        return Check(name, False, error.message, error.remedy or "")


def _version(cli: BrevCli) -> str:
    version = cli.version()
    cli.require("ls", "json")
    return version or "a version that does not say its number"


def _login(cli: BrevCli, org: str | None) -> str:
    cli.login()
    if cli.uses_api_key():
        return "by API key"
    active = [o.name for o in cli.organizations() if o.active]
    if org is not None and active != [org]:
        raise BrevError(
            f"the active organisation is {', '.join(active) or 'none'}, not {org}",
            remedy=f"brev set {org}",
        )
    return f"organisation {', '.join(active) or 'not shown'}"


def _flags(cli: BrevCli, spec: object) -> str:
    assert isinstance(spec, BrevSpec)
    for flag, _ in spec.options:
        cli.require("create", flag)
    return "all options that are set are known to this CLI"


def _ssh_key(cli: BrevCli) -> str:
    cli.refresh()
    key = cli.ssh_config.with_name("brev.pem")
    if not key.exists():
        return "by certificates that the CLI makes when they are needed"
    try:
        paramiko.PKey.from_path(key)
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise BrevError(
            f"the SSH key cannot be used: {error}",
            where=str(key),
            remedy=f"rm {key}, then `brev refresh`",
        ) from error
    return f"key {key}"


def _session(cli: BrevCli, needed: float | None) -> Iterator[Check]:
    """needed: hours for which the session should last, None: not known."""
    expires = cli.expires_at()
    if expires is None:
        return
    hours = (expires - time.time()) / 3600.0
    lasts = hours > (_A_DAY_H if needed is None else needed)
    text = f"this token's session ends in {hours:.1f} h and cannot renew itself"
    text += "" if needed is None else f"; budget.hours allows {needed:g} h"
    remedy = (
        "put a new token into the file that BREV_API_TOKEN_FILE names when it ends, or use an API "
        "key; until then training goes on, and deletions wait"
    )
    yield Check("brev session", lasts, text, "" if lasts else remedy, warning=True)


def _pod() -> Iterator[Check]:
    if POD_TOKEN.exists():
        yield Check(
            "brev in a pod",
            False,
            f"the CLI takes this pod's own token ({POD_TOKEN}) for its session, whatever you log "
            "in with",
            "set automountServiceAccountToken: false in the pod's spec",
            warning=True,
        )


def _offers_file(directory: Path) -> Path:
    return directory / "offers.json"


def _read_offers(directory: Path) -> tuple[InstanceType, ...] | None:
    try:
        rows = json.loads(_offers_file(directory).read_text())
    except FileNotFoundError:
        return None
    return tuple(InstanceType(**row) for row in rows)


def _write_offers(directory: Path, offers: tuple[InstanceType, ...]) -> None:
    if not _offers_file(directory).exists():
        write_text(_offers_file(directory), json.dumps([asdict(o) for o in offers], indent=1))

"""How a run's Brev machines are made: the part of the platform that other processes need too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tao_ray.platforms.brev.account import Shared
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.exec import ExecMachine
from tao_ray.platforms.brev.names import machine_name
from tao_ray.platforms.brev.provider import BrevProvider
from tao_ray.platforms.brev.records import InstanceType
from tao_ray.platforms.brev.steps import Progress, Times
from tao_ray.platforms.fleet import PoolSettings, Prepare
from tao_ray.platforms.host_keys import HostKeys
from tao_ray.platforms.machine import Engine, Machine, MachineShape
from tao_ray.platforms.ssh import SshMachine
from tao_ray.platforms.ssh_config import SshTarget

if TYPE_CHECKING:
    from tao_ray.config import BrevPlatformConfig

_POLL_S = 0.5
_TIMES = Times()


@dataclass(frozen=True)
class BrevSpec:
    """See `tao_ray.platforms.pool_host.PoolSpec`.

    run: names the run; machines are named after it. directory: the run's, for pinned host keys.
    offers: the types to try with their reviewed prices. options: further flags of `brev create`.
    engine: prepares machines for jobs; None where no job will run. link: how machines are reached.
    """

    run: str
    directory: Path
    settings: PoolSettings
    offers: tuple[InstanceType, ...] = ()
    times: Times = _TIMES
    org: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    engine: Engine | None = None
    link: Literal["ssh", "exec"] = "ssh"

    def provider(
        self, tell: Callable[[Mapping[str, Any]], None], sleep: Callable[[float], None]
    ) -> BrevProvider:
        def say(progress: Progress) -> None:
            data: dict[str, Any] = {
                "what": progress.step,
                "name": progress.name,
                "text": progress.text,
            }
            if progress.step == "asked":
                HostKeys(self._host_keys).forget(progress.name)
            if progress.type is not None or progress.step == "adopted":
                data |= {"type": progress.type, "price": progress.price_per_hour}
            tell(data)

        cli = BrevCli()
        refreshed = Shared(cli.refresh, time.monotonic)

        def connect(name: str) -> Machine:
            refreshed.get()
            return self.machine(name)

        return BrevProvider(
            cli,
            self.offers,
            connect,
            tell=say,
            times=self.times,
            org=self.org,
            options=dict(self.options),
            sleep=sleep,
        )

    def machine_name(self, number: int) -> str:
        return machine_name(self.run, number)

    def machine(self, name: str) -> Machine:
        if self.link == "exec":
            return ExecMachine(name)
        target = SshTarget(name, config_file=str(BrevCli().ssh_config))
        return SshMachine(name, target, self._host_keys, poll_interval=_POLL_S)

    @property
    def prepare(self) -> Prepare | None:
        return None if self.engine is None else self.engine.prepare

    @property
    def _host_keys(self) -> Path:
        """Pinned when a machine is first reached; another instance of its name has another key."""
        return self.directory / "known_hosts"


def pool_settings(config: BrevPlatformConfig, max_concurrent: int) -> PoolSettings:
    """What the configuration says of the pool."""
    slots = config.slots if config.reuse else 1
    needed = math.ceil(max_concurrent / slots)
    return PoolSettings(
        machines=1 if config.instance else min(config.machines or needed, needed),
        slots=slots,
        shape=MachineShape(config.gpu, config.gpus * slots),
        reuse=config.reuse,
        idle_timeout=config.idle_timeout,
        lost_after=config.lost_after,
        fixed=config.instance,
    )

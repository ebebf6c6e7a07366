"""Machines rented from Brev.

What exists is what `ls` shows, never what `create` or `delete` returned: `create` exits with 0
for an instance that failed and with 1 for one that was made; `delete` only asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tao_ray.platforms.base import LinkError, PlatformError
from tao_ray.platforms.brev.account import Account
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.deleting import delete
from tao_ray.platforms.brev.errors import (
    ANOTHER_TYPE,
    BrevCapacityError,
    BrevError,
    BrevNameTakenError,
    BrevNetworkError,
    BrevProvisionError,
    BrevRefusedError,
    BrevTimeoutError,
)
from tao_ray.platforms.brev.names import check_ours, is_ours
from tao_ray.platforms.brev.records import Instance, InstanceType
from tao_ray.platforms.brev.steps import FINAL, Desk, Progress, Times
from tao_ray.platforms.brev.waiting import reach, until_ready
from tao_ray.platforms.machine import Machine, MachineShape

_ANY = MachineShape()
_TIMES = Times()
_ATTEMPTS = 3


class BrevProvider:
    """See `tao_ray.platforms.machine.MachineProvider`. May be used by many threads at a time.

    offers: the types to try, in order, each at its reviewed price (USD per hour). One that costs
        more when it is to be created is left out.
    connect: makes the link to a running instance; raises LinkError as long as it cannot.
    tell: called with each `Progress`, from the thread that works on that machine.
    org: the organisation the machines live in. `ls` shows one organisation only, so without it a
        switch by ``brev set`` would make every machine look deleted.
    options: further flags for `create`.
    """

    def __init__(
        self,
        cli: BrevCli,
        offers: Sequence[InstanceType],
        connect: Callable[[str], Machine],
        *,
        tell: Callable[[Progress], None] = lambda progress: None,
        times: Times = _TIMES,
        org: str | None = None,
        options: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._offers = list(offers)
        self._options = options
        account = Account(cli, org, clock, times.prices)
        self._desk = Desk(cli, account, connect, tell, times, clock, sleep)

    def create(self, name: str, shape: MachineShape = _ANY) -> Machine:
        """The machine of this name, adopted if it exists, else of the first type to be had.

        Without a session it waits for one. Raises BrevCapacityError if no type is to be had; then
        nothing was left behind. After any other error the instance may exist: `delete` it, or call
        `create` again.
        """
        check_ours(name)
        self._desk.patiently(name, self._desk.account.check_org)
        reasons: list[str] = []
        existing = self._settled(name)
        if existing is not None:
            self._adopt(name, existing)
            machine = self._try(name, None, reasons)
            if machine is not None:
                return machine
        for offer in self._offers:
            if offer.gpu_count < shape.gpus:
                continue
            try:
                self._desk.patiently(name, partial(self._desk.account.check_price, offer))
                self._request(name, offer)
            except (BrevCapacityError, BrevRefusedError) as error:
                self._skip(name, offer, error, reasons)
                continue
            machine = self._try(name, offer, reasons)
            if machine is not None:
                return machine
        raise BrevCapacityError(
            "no machine to be had: " + ("; ".join(reasons) or "no offer is large enough"),
            where=name,
            remedy=f"try again later, raise platform.max_price_per_hour, or {ANOTHER_TYPE}",
        )

    def find(self, name: str) -> Machine | None:
        """The machine of this name; None: there is none. Raises LinkError if it does not answer."""
        instance = self.instance(name)
        if instance is None:
            return None
        if not instance.running:
            raise LinkError(f"the instance is {instance.status}", where=name)
        return reach(self._desk, name)

    def instance(self, name: str) -> Instance | None:
        """What `ls` shows of an instance now; None: there is none."""
        return self._desk.account.look(name)

    def names(self, run: str | None = None) -> list[str]:
        """Names of all instances that this project made and that exist now, or of one run's."""
        return sorted(name for name in self._desk.account.instances() if is_ours(name, run))

    def price(self, instance: Instance) -> float:
        """Its reviewed USD per hour; the dearest offer's where `ls` hides the type."""
        prices = {offer.type: offer.price_per_hour for offer in self._offers}
        return prices.get(instance.type, max(prices.values(), default=0.0))

    def delete(self, name: str, timeout: float | None = None) -> None:
        """Delete the instance and see that it is gone, for as long as it takes or `timeout` s.

        Raises BrevTimeoutError, and nothing else but for an unknown name.
        """
        delete(self._desk, name, timeout)

    def _adopt(self, name: str, instance: Instance) -> None:
        price = self.price(instance)
        text = f"exists already ({instance.status}, type {instance.type or 'not shown'})"
        self._desk.say(name, "adopted", text, instance.type or None, price)

    def _skip(
        self, name: str, offer: InstanceType, error: PlatformError, reasons: list[str]
    ) -> None:
        reasons.append(f"{offer.type}: {error.message}")
        self._desk.say(name, "skipped", error.message, offer.type, offer.price_per_hour)

    def _try(self, name: str, offer: InstanceType | None, reasons: list[str]) -> Machine | None:
        """Wait for the instance; if it comes to nothing, delete it (verified) and say why."""
        try:
            return until_ready(self._desk, name)
        except BrevProvisionError as error:
            reasons.append(f"{offer.type if offer else 'what existed'}: {error.message}")
            self._desk.say(name, "abandoned", str(error), offer.type if offer else None)
            delete(self._desk, name, self._desk.times.delete)
            return None

    def _request(self, name: str, offer: InstanceType) -> None:
        """Ask for an instance until one of this name exists or is refused."""
        for attempt in range(1, _ATTEMPTS + 1):
            text = f"{offer.type} ({offer.provider or offer.cloud or 'provider not shown'})"
            self._desk.say(name, "asked", text, offer.type, offer.price_per_hour)
            try:
                create = partial(self._desk.cli.create, name, offer.type, self._options)
                self._desk.in_session(name, create)
                self._desk.say(name, "made", "the request was taken")
                return
            except FINAL:
                raise
            except BrevNameTakenError as error:
                last: BrevError = error
                existing = self._settled(name)
            except (BrevCapacityError, BrevRefusedError) as error:
                last = error
                existing = self._certain_look(name)
                if existing is None:
                    raise
            except BrevError as error:
                self._desk.say(name, "trouble", f"it is not known whether it was made: {error}")
                last = error
                self._desk.unsure[name] = self._desk.clock() + self._desk.times.appear
                existing = self._appearing(name)
            if existing is not None:
                self._adopt(name, existing)
                return
            if attempt < _ATTEMPTS:
                self._desk.sleep(self._desk.backoff(attempt))
        if isinstance(last, (BrevNetworkError, BrevTimeoutError, BrevNameTakenError)):
            raise last
        raise BrevRefusedError(last.message, where=last.where, remedy=last.remedy) from last

    def _appearing(self, name: str) -> Instance | None:
        """The instance if it shows within `appear` seconds."""
        deadline = self._desk.clock() + self._desk.times.appear
        while True:
            instance = self._certain_look(name)
            if instance is not None or self._desk.clock() >= deadline:
                return instance
            self._desk.sleep(self._desk.times.poll)

    def _settled(self, name: str) -> Instance | None:
        """The instance, after one that is being deleted has gone."""
        deadline = self._desk.clock() + self._desk.times.delete
        while True:
            instance = self._certain_look(name)
            if instance is None or instance.status != "DELETING":
                return instance
            if self._desk.clock() >= deadline:
                raise BrevNameTakenError(
                    f"an instance of this name has been DELETING for {self._desk.times.delete:g} s",
                    where=name,
                    remedy="see `brev ls`; delete it in the Brev console",
                )
            self._desk.sleep(self._desk.times.poll)

    def _certain_look(self, name: str) -> Instance | None:
        return self._desk.patiently(name, lambda: self._desk.account.look(name))

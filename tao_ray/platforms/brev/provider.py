"""Machines rented from Brev.

What exists is what `ls` shows, never what `create` or `delete` returned: `create` exits with 0
for an instance that failed and with 1 for one that was made; `delete` only asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from tao_ray.platforms.base import LinkError, MachineLostError, PlatformError
from tao_ray.platforms.brev.account import Account
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import (
    ANOTHER_TYPE,
    BrevAuthError,
    BrevCapacityError,
    BrevError,
    BrevMissingError,
    BrevNameTakenError,
    BrevNetworkError,
    BrevProvisionError,
    BrevRefusedError,
    BrevTimeoutError,
    BrevUnsupportedError,
)
from tao_ray.platforms.brev.names import check_ours, is_ours
from tao_ray.platforms.brev.records import Instance, InstanceType
from tao_ray.platforms.machine import Machine, MachineShape

_FINAL = (BrevAuthError, BrevMissingError, BrevUnsupportedError)
_ANY = MachineShape()
_ATTEMPTS = 3
_PROBE_S = 2.0
_T = TypeVar("_T")


Step = Literal[
    "asked",
    "made",
    "skipped",
    "adopted",
    "waiting",
    "ready",
    "abandoned",
    "trouble",
    "accepted",
    "deleted",
]


@dataclass(frozen=True)
class Progress:
    """A step in a machine's life, told when it happens; `asked` before the request is sent.

    made: the request was taken, so that it is billed. accepted: the request for its deletion was
    taken, so that it is not billed any more. Both are told when the CLI has returned, which is
    about equally late after the moment itself.
    """

    name: str
    step: Step
    text: str
    type: str | None = None
    price_per_hour: float | None = None


@dataclass(frozen=True)
class Times:
    """Waits, in seconds.

    ready: from the request to the first answer over SSH. poll: between two looks.
    appear: until a requested instance must show in `ls`. confirm: between the two looks that
    must both miss a deleted instance. delete: for an instance being deleted, inside `create`.
    backoff: longest pause between retries. prices: for which a catalogue is good.
    """

    ready: float = 600.0
    poll: float = 5.0
    appear: float = 60.0
    confirm: float = 2.0
    delete: float = 900.0
    backoff: float = 60.0
    prices: float = 60.0


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
        times: Times = Times(),
        org: str | None = None,
        options: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._cli = cli
        self._offers = list(offers)
        self._connect = connect
        self._tell = tell
        self._times = times
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._account = Account(cli, org, clock, times.prices)
        self._unsure: dict[str, float] = {}

    def create(self, name: str, shape: MachineShape = _ANY) -> Machine:
        """The machine of this name, adopted if it exists, else of the first type to be had.

        Raises BrevCapacityError if no type is to be had; then nothing was left behind. After
        any other error the instance may exist: `delete` it, or call `create` again.
        """
        check_ours(name)
        self._patiently(name, self._account.check_org)
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
                self._patiently(name, partial(self._account.check_price, offer))
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
        return self._reach(name)

    def instance(self, name: str) -> Instance | None:
        """What `ls` shows of an instance now; None: there is none."""
        return self._account.look(name)

    def names(self, run: str | None = None) -> list[str]:
        """Names of all instances that this project made and that exist now, or of one run's."""
        return sorted(name for name in self._account.instances() if is_ours(name, run))

    def price(self, instance: Instance) -> float:
        """Its reviewed USD per hour; the dearest offer's where `ls` hides the type."""
        prices = {offer.type: offer.price_per_hour for offer in self._offers}
        return prices.get(instance.type, max(prices.values(), default=0.0))

    def delete(self, name: str, timeout: float | None = None) -> None:
        """Delete the instance and see that it is gone, for as long as it takes or `timeout` s.

        Gone means: missing in two readable listings. Trouble is told and tried again, with
        growing pauses. Raises BrevTimeoutError, and nothing else but for an unknown name.
        """
        check_ours(name)
        started = self._clock()
        absences = failures = 0
        asked: float | None = None
        while True:
            pause = self._times.confirm
            try:
                instance = self._account.look(name)
                if instance is None:
                    absences += 1
                    if absences >= 2 and self._clock() >= self._unsure.get(name, started):
                        self._unsure.pop(name, None)
                        self._say(name, "deleted", "gone")
                        return
                else:
                    absences = 0
                    pause = self._times.poll
                    if asked is None and instance.status == "DELETING":
                        # Whoever asked did not hear the answer.
                        asked = self._clock()
                        self._say(name, "accepted", "is being deleted")
                    elif asked is None or self._may_be_forgotten(instance, asked):
                        self._cli.delete(name)
                        asked = self._clock()
                        self._say(name, "accepted", "deletion requested")
                        pause = self._times.confirm
                failures = 0
            except BrevError as error:
                failures += 1
                pause = self._backoff(failures)
                self._say(name, "trouble", f"not deleted yet: {error}")
            if timeout is not None and self._clock() + pause - started > timeout:
                raise BrevTimeoutError(
                    f"the instance is not verified to be gone after {timeout:g} s",
                    where=name,
                    remedy=f"it may still cost money: see `brev ls`, then `brev delete {name}`",
                )
            self._sleep(pause)

    def _may_be_forgotten(self, instance: Instance, asked: float) -> bool:
        """A deletion that was accepted but does not show may have been lost: ask again."""
        patience = self._times.poll if instance.status != "DELETING" else self._times.appear * 5
        return self._clock() - asked >= patience

    def _adopt(self, name: str, instance: Instance) -> None:
        price = self.price(instance)
        text = f"exists already ({instance.status}, type {instance.type or 'not shown'})"
        self._say(name, "adopted", text, instance.type or None, price)

    def _skip(
        self, name: str, offer: InstanceType, error: PlatformError, reasons: list[str]
    ) -> None:
        reasons.append(f"{offer.type}: {error.message}")
        self._say(name, "skipped", error.message, offer.type, offer.price_per_hour)

    def _try(self, name: str, offer: InstanceType | None, reasons: list[str]) -> Machine | None:
        """Wait for the instance; if it comes to nothing, delete it (verified) and say why."""
        try:
            return self._until_ready(name)
        except BrevProvisionError as error:
            reasons.append(f"{offer.type if offer else 'what existed'}: {error.message}")
            self._say(name, "abandoned", str(error), offer.type if offer else None)
            self.delete(name, self._times.delete)
            return None

    def _request(self, name: str, offer: InstanceType) -> None:
        """Ask for an instance until one of this name exists or is refused."""
        for attempt in range(1, _ATTEMPTS + 1):
            text = f"{offer.type} ({offer.provider or offer.cloud or 'provider not shown'})"
            self._say(name, "asked", text, offer.type, offer.price_per_hour)
            try:
                self._cli.create(name, offer.type, self._options)
                self._say(name, "made", "the request was taken")
                return
            except _FINAL:
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
                self._say(name, "trouble", f"it is not known whether it was made: {error}")
                last = error
                self._unsure[name] = self._clock() + self._times.appear
                existing = self._appearing(name)
            if existing is not None:
                self._adopt(name, existing)
                return
            if attempt < _ATTEMPTS:
                self._sleep(self._backoff(attempt))
        if isinstance(last, (BrevNetworkError, BrevTimeoutError, BrevNameTakenError)):
            raise last
        raise BrevRefusedError(last.message, where=last.where, remedy=last.remedy) from last

    def _appearing(self, name: str) -> Instance | None:
        """The instance if it shows within `appear` seconds."""
        deadline = self._clock() + self._times.appear
        while True:
            instance = self._certain_look(name)
            if instance is not None or self._clock() >= deadline:
                return instance
            self._sleep(self._times.poll)

    def _settled(self, name: str) -> Instance | None:
        """The instance, after one that is being deleted has gone."""
        deadline = self._clock() + self._times.delete
        while True:
            instance = self._certain_look(name)
            if instance is None or instance.status != "DELETING":
                return instance
            if self._clock() >= deadline:
                raise BrevNameTakenError(
                    f"an instance of this name has been DELETING for {self._times.delete:g} s",
                    where=name,
                    remedy="see `brev ls`; delete it in the Brev console",
                )
            self._sleep(self._times.poll)

    def _until_ready(self, name: str) -> Machine:
        """The link to the instance once it answers. Raises BrevProvisionError if it will not."""
        since = self._clock()
        seen = started = False
        text = ""
        while True:
            waited = self._clock() - since
            pause = self._times.poll
            try:
                instance = self._account.look(name, self._clock() - self._times.poll / 2)
            except BrevError as error:
                if not error.transient:
                    raise
                state = f"`brev ls` does not answer: {error.message}"
            else:
                if instance is None:
                    state = "not in `brev ls`"
                    if seen or waited >= self._times.appear:
                        raise self._stuck(name, "it vanished" if seen else "it never appeared")
                else:
                    seen = True
                    state = f"{instance.status} {instance.build_status}".strip()
                    if instance.status in ("FAILURE", "DELETING"):
                        raise self._stuck(name, f"its state is {state}")
                    if instance.status == "STOPPED" and not started:
                        self._cli.start(name)
                        started = True
                    if instance.running:
                        pause = min(pause, _PROBE_S)  # it is billed, and will answer soon
                        try:
                            machine = self._reach(name)
                        except (LinkError, MachineLostError) as error:
                            state += f", no answer over SSH yet: {error.message}"
                        else:
                            self._say(name, "ready", f"{state}, answers over SSH")
                            return machine
            if state != text:
                text = state
                self._say(name, "waiting", state)
            if waited >= self._times.ready:
                raise self._stuck(name, f"not ready after {self._times.ready:g} s: {state}")
            self._sleep(pause)

    def _reach(self, name: str) -> Machine:
        """A link that has carried a command. Raises LinkError."""
        try:
            machine = self._connect(name)
        except _FINAL:
            raise
        except BrevError as error:
            raise LinkError(error.message, where=name, remedy=error.remedy) from error
        try:
            result = machine.run("true", timeout=20.0)
            if result.code:
                raise LinkError(f"a first command ended with exit code {result.code}", where=name)
        except BaseException:
            machine.close()
            raise
        return machine

    def _certain_look(self, name: str) -> Instance | None:
        return self._patiently(name, lambda: self._account.look(name))

    def _patiently(self, name: str, ask: Callable[[], _T]) -> _T:
        """Ask, and ask again if passing trouble prevents the answer."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return ask()
            except BrevError as error:
                if not error.transient:
                    raise
                self._say(name, "trouble", str(error))
                self._sleep(self._backoff(attempt))
        return ask()

    def _backoff(self, failures: int) -> float:
        return min(self._times.backoff, self._times.poll * 2.0 ** (failures - 1))

    def _stuck(self, name: str, what: str) -> BrevProvisionError:
        return BrevProvisionError(
            f"the instance did not become ready: {what}", where=name, remedy=ANOTHER_TYPE
        )

    def _say(
        self,
        name: str,
        step: Step,
        text: str,
        type: str | None = None,
        price_per_hour: float | None = None,
    ) -> None:
        self._tell(Progress(name, step, text, type, price_per_hour))

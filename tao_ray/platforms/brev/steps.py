"""What all dealings with Brev about a machine have in common: their steps, waits and means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tao_ray.platforms.brev.account import Account
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import (
    BrevAuthError,
    BrevError,
    BrevMissingError,
    BrevUnsupportedError,
)
from tao_ray.platforms.machine import Machine

FINAL = (BrevMissingError, BrevUnsupportedError)
"""No other type and no other moment would do better."""
_ATTEMPTS = 3
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


@dataclass(frozen=True)
class Desk:
    """See `BrevProvider` for connect, tell, clock and sleep. unsure: machines that may have been
    made by a request whose answer was lost -> until when they may yet appear."""

    cli: BrevCli
    account: Account
    connect: Callable[[str], Machine]
    tell: Callable[[Progress], None]
    times: Times
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    unsure: dict[str, float] = field(default_factory=dict)

    def say(
        self,
        name: str,
        step: Step,
        text: str,
        type: str | None = None,
        price_per_hour: float | None = None,
    ) -> None:
        """Tell a step."""
        self.tell(Progress(name, step, text, type, price_per_hour))

    def backoff(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.times.backoff, self.times.poll * 2.0 ** (failures - 1))

    def patiently(self, name: str, ask: Callable[[], _T]) -> _T:
        """Ask, and ask again if passing trouble prevents the answer."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return self.in_session(name, ask)
            except BrevError as error:
                if not error.transient:
                    raise
                self.say(name, "trouble", str(error))
                self.sleep(self.backoff(attempt))
        return self.in_session(name, ask)

    def in_session(self, name: str, ask: Callable[[], _T]) -> _T:
        """Ask, and wait for another session as often as there is none: nothing else would help,
        and what trains goes on meanwhile."""
        failures = 0
        while True:
            try:
                return ask()
            except BrevAuthError as error:
                failures += 1
                self.say(name, "trouble", str(error))
                self.sleep(self.backoff(failures))

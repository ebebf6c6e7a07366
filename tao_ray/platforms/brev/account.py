"""What Brev shows now: the account's instances and the catalogue's prices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import BrevError, BrevRefusedError
from tao_ray.platforms.brev.records import Instance, InstanceType
from tao_ray.platforms.brev.types import collapse

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """A call that many threads want: one answers all who asked before it began."""

    def __init__(self, call: Callable[[], _T], clock: Callable[[], float]):
        self._call = call
        self._clock = clock
        self._calling = threading.Lock()
        self._last: tuple[float, _T] | None = None

    def get(self, since: float | None = None) -> _T:
        """What a call that began after `since` (default: now) has said."""
        since = self._clock() if since is None else since
        with self._calling:
            if self._last is None or self._last[0] <= since:
                at = self._clock()
                self._last = (at, self._call())
            return self._last[1]


class Account:
    """The instances of one organisation (default: of the active one).

    price_age: seconds for which a catalogue is good.
    """

    def __init__(self, cli: BrevCli, org: str | None, clock: Callable[[], float], price_age: float):
        self._cli = cli
        self._org = org
        self._clock = clock
        self._price_age = price_age
        self._listed = Shared(self._list, clock)
        self._priced = Shared(self._catalogue, clock)

    def instances(self, since: float | None = None) -> dict[str, Instance]:
        """All instances by name, as listed after `since` (default: now)."""
        return self._listed.get(since)

    def _list(self) -> dict[str, Instance]:
        rows = self._cli.ls(self._org)
        rows.sort(key=lambda row: row.status != "DELETING")  # a successor hides it
        return {row.name: row for row in rows}

    def _catalogue(self) -> dict[str, float]:
        return {row.type: row.price_per_hour for row in collapse(self._cli.search())}

    def look(self, name: str, since: float | None = None) -> Instance | None:
        """One of the instances; None: there is none of this name."""
        return self.instances(since).get(name)

    def check_org(self) -> None:
        """Raises BrevError if new instances would be made in another organisation."""
        if self._org is None or self._cli.uses_api_key():
            return
        active = [org.name for org in self._cli.organizations() if org.active]
        if active != [self._org]:
            raise BrevError(
                f"the active organisation is {', '.join(active) or 'none'}, not {self._org}",
                where="brev",
                remedy=f"run `brev set {self._org}`",
            )

    def check_price(self, offer: InstanceType) -> None:
        """Raises BrevRefusedError if the type costs more now than reviewed, or shows no price."""
        price = self._priced.get(self._clock() - self._price_age).get(offer.type)
        if price is not None and price <= offer.price_per_hour + 1e-9:
            return
        now = "it has no price now" if price is None else f"it costs {price:g} USD/h now"
        raise BrevRefusedError(
            f"{now}, {offer.price_per_hour:g} USD/h were reviewed",
            where=offer.type,
            remedy="start again to review the new price",
        )

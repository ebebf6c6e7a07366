"""The reaper: deletes a run's machines when its driver has died and nobody has resumed the run.

A process of its own for each run, started before the first machine is made. It survives the
driver, its terminal and Ray; it ends when the driver is gone and nothing is left. It tells the
driver's death by the journal's lock, and becomes the journal's writer while it deletes, so that a
resumed driver waits for it and finds what it did on record.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tao_ray.errors import TaoRayError
from tao_ray.journal import FILE_NAME, Event, Journal, JournalLocked, is_being_written, read_events
from tao_ray.platforms.ledger import KIND, Ledger

_log = logging.getLogger(__name__)
_POLL_S = 5.0
_LONGEST_POLL_S = 60.0
_ATTEMPT_S = 60.0


@dataclass(frozen=True)
class ReaperSpec:
    """directory: the run's. run: what its machines are named after. grace_s: how long the driver
    must be dead. org: the organisation the machines are in."""

    directory: str
    run: str
    grace_s: float
    org: str | None = None


class Reapable(Protocol):
    """What a reaper needs of a provider."""

    def names(self, run: str | None = None) -> list[str]:
        """Names of the machines of a run that exist."""

    def delete(self, name: str, timeout: float | None = None) -> None:
        """Delete a machine and see that it is gone."""


class Reaper:
    """provider: made with a function that is told each step (see `ledger`). over: called when
    nothing is left, before anybody can resume the run: another reaper may watch from then on."""

    def __init__(
        self,
        spec: ReaperSpec,
        provider: Callable[[Callable[[Mapping[str, Any]], None]], Reapable],
        *,
        over: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._spec = spec
        self._journal = Path(spec.directory, FILE_NAME)
        self._provider = provider(self._told)
        self._writer: Journal | None = None
        self._say_over = over
        self._clock = clock
        self._sleep = sleep

    def run(self) -> None:
        """Watch, and return when the driver is gone and nothing is left."""
        poll = min(_POLL_S, self._spec.grace_s / 4)
        dead_since: float | None = None
        failed = 0
        while True:
            if is_being_written(self._journal):
                dead_since, failed = None, 0
            else:
                dead_since = dead_since or self._clock()
                over = self._over()
                if over or self._clock() - dead_since >= self._spec.grace_s:
                    if not over:
                        _log.info("the driver is dead and nobody has resumed the run")
                    if self._sweep():
                        return
                    failed += 1
            self._sleep(min(_LONGEST_POLL_S, poll * 2.0 ** min(failed, 10)))

    def _over(self) -> bool:
        """The last driver ended the run, so it has deleted everything."""
        events = read_events(self._journal) if self._journal.exists() else []
        ends = [e.data["what"] == "ended" for e in events if e.kind == "run"]
        return bool(ends and ends[-1]) and not Ledger.fold(events).existing()

    def _sweep(self) -> bool:
        """Delete what is left. Whether nothing is, and this reaper has ended for others."""
        with contextlib.ExitStack() as stack:
            known: list[str] = []
            if self._journal.parent.is_dir():  # else somebody has deleted the run's directory
                try:
                    writer = stack.enter_context(closing(Journal(self._journal, wait_s=0.0)))
                except JournalLocked:
                    return False  # resumed
                known = [m.name for m in Ledger.fold(writer.read()).existing()]
                self._writer = writer
            try:
                found = self._provider.names(self._spec.run)
                for name in dict.fromkeys([*known, *found]):
                    self._record(what="deleting", name=name, text="its run's driver is dead")
                    self._provider.delete(name, _ATTEMPT_S)
                    self._record(what="deleted", name=name)
                if self._provider.names(self._spec.run):
                    return False
            except TaoRayError as error:
                _log.warning("not all is deleted yet: %s", error)
                return False
            finally:
                self._writer = None
            # Whoever resumes the run now waits for the journal, and starts a reaper after that.
            self._say_over()
            return True

    def _told(self, data: Mapping[str, Any]) -> None:
        _log.info("%s: %s %s", data["name"], data["what"], data.get("text", ""))
        if data["what"] in ("accepted", "trouble"):
            self._record(**data)

    def _record(self, **data: Any) -> None:
        if self._writer is not None:
            self._writer.append(Event(KIND, data=data))

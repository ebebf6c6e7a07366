"""The machine pool with an injected clock and a provider whose every step the test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tao_ray.journal import Event
from tao_ray.platforms.base import CapacityError, ImageAccessError, LinkError, PlatformError
from tao_ray.platforms.fleet import PoolSettings
from tao_ray.platforms.ledger import KIND, Ledger
from tao_ray.platforms.machine import MachineShape
from tao_ray.platforms.pool import MachinePool

PRICE = 2.0


class Landlord:
    """An account in memory. gates: name -> an event that `create` waits for."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.ever: list[str] = []
        self.refusals: list[Exception] = []
        self.delete_refusals = 0
        self.unreachable: set[str] = set()
        self.slow = False
        self.tell: Callable[[Mapping[str, Any]], None] = lambda data: None
        self.sleep: Callable[[float], None] = time.sleep

    def __call__(self, tell: Any, sleep: Any) -> Landlord:
        self.tell, self.sleep = tell, sleep
        return self

    def create(self, name: str, shape: MachineShape) -> str:
        if name not in self.alive:
            if self.refusals:
                raise self.refusals.pop(0)
            self.tell({"what": "asked", "name": name, "type": "t", "price": PRICE, "text": "t"})
            self.alive.add(name)
            self.ever.append(name)
        while self.slow:
            self.sleep(0.0)
            time.sleep(0.001)
        return name

    def find(self, name: str) -> str | None:
        if name in self.unreachable:
            raise LinkError("no answer", where=name)
        return name if name in self.alive else None

    def names(self) -> list[str]:
        return sorted(self.alive)

    def delete(self, name: str) -> None:
        while self.delete_refusals:
            self.delete_refusals -= 1
            self.tell({"what": "trouble", "name": name, "text": "refused"})
        self.alive.discard(name)


class World:
    """A pool, its journal and its clock."""

    def __init__(self) -> None:
        self.landlord = Landlord()
        self.now = 1000.0
        self.events: list[Event] = []
        self.said: list[str] = []
        self.pulled: list[tuple[str, str | None]] = []
        self.refused_image: PlatformError | None = None
        self.endless_pull = False

    def record(self, data: Mapping[str, Any]) -> float:
        self.events.append(Event(KIND, data=dict(data), time=self.now))
        return self.now

    def pool(self, **settings: Any) -> MachinePool:
        """A pool that knows what earlier ones have journalled."""
        return MachinePool(
            self.landlord,
            lambda number: f"m-{number}",
            PoolSettings(**{"machines": 2, **settings}),
            self.record,
            ledger=Ledger.fold(self.events),
            say=self.said.append,
            clock=lambda: self.now,
            sleep=lambda seconds: time.sleep(0.001),
            prepare=self.prepare,
        )

    def prepare(self, machine: Any, image: str | None, *, say: Any, sleep: Any) -> None:
        """A pull: of an image that may be refused, or takes for ever."""
        say(f"pulling {image}")
        self.pulled.append((machine, image))
        if self.refused_image is not None:
            raise self.refused_image
        while self.endless_pull:
            sleep(0.0)
            time.sleep(0.001)

    @property
    def ledger(self) -> Ledger:
        return Ledger.fold(self.events)

    def whats(self, name: str) -> list[str]:
        return [e.data["what"] for e in self.events if e.data["name"] == name]


@pytest.fixture
def world() -> Iterator[World]:
    before = threading.active_count()
    made = World()
    yield made
    made.landlord.slow = False
    until(lambda: threading.active_count() <= before)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.002)


def lease(pool: MachinePool, job: str, workspace: str = "w") -> str:
    """As a supervisor does: ask until there is a machine."""
    got: list[str] = []

    def there() -> bool:
        try:
            got.append(pool.lease(job, workspace))
        except CapacityError:
            return False
        return True

    until(there)
    return got[0]


def done(pool: MachinePool, job: str) -> None:
    pool.give_back(job)
    pool.settled(job)


def test_a_machine_is_made_when_a_job_waits_and_used_again(world: World) -> None:
    pool = world.pool()
    pool.tick()
    assert world.landlord.ever == []
    with pytest.raises(CapacityError, match="a machine"):
        pool.lease("a-1", "a")
    assert lease(pool, "a-1", "a") == "m-1"
    assert pool.lease("a-1", "a") == "m-1", "the same one for the same job"
    done(pool, "a-1")
    assert lease(pool, "b-1", "b") == "m-1"
    assert world.landlord.ever == ["m-1"]
    assert world.whats("m-1")[:4] == ["wanted", "asked", "ready", "leased"]


def test_the_intent_is_on_record_before_the_request(world: World) -> None:
    recorded: list[list[str]] = []
    create = world.landlord.create

    def watched(name: str, shape: MachineShape) -> str:
        recorded.append(world.whats(name))
        return create(name, shape)

    world.landlord.create = watched  # type: ignore[method-assign]
    lease(world.pool(), "a-1")
    assert recorded == [["wanted"]]


def test_a_machine_has_the_image_before_it_counts_as_ready(world: World) -> None:
    pool = world.pool(machines=1)
    world.endless_pull = True
    with pytest.raises(CapacityError):
        pool.lease("a-1", "a", "image:1")
    until(lambda: bool(world.pulled))
    with pytest.raises(CapacityError, match="m-1: pulling image:1"):
        pool.lease("a-1", "a", "image:1")
    world.endless_pull = False
    assert lease(pool, "a-1", "a") == "m-1"
    assert world.pulled == [("m-1", "image:1")]
    whats = world.whats("m-1")
    assert whats.index("waiting") < whats.index("ready")
    while_pulling = Ledger.fold(world.events[: 1 + whats.index("waiting")])
    shown = while_pulling.shown(world.now)
    assert shown == "machines: 0 ready, 1 coming (pulling image:1), 0.00 USD"
    assert world.ledger.shown(world.now).startswith("machines: 1 ready,")


def test_an_image_that_is_refused_is_not_tried_on_machine_after_machine(world: World) -> None:
    world.refused_image = ImageAccessError("no access to image:1")
    pool = world.pool()
    with pytest.raises(ImageAccessError):
        until(lambda: refused(pool))
    until(lambda: not pool.left())
    assert world.landlord.ever == ["m-1"]


def refused(pool: MachinePool) -> bool:
    try:
        pool.lease("a-1", "a", "image:1")
    except CapacityError:
        return False
    return True


def test_a_pull_does_not_keep_a_machine_that_is_not_wanted(world: World) -> None:
    world.endless_pull = True
    pool = world.pool()
    with pytest.raises(CapacityError):
        pool.lease("a-1", "a", "image:1")
    until(lambda: bool(world.pulled))
    pool.close()
    until(lambda: not pool.left())
    assert world.landlord.alive == set()


def test_as_many_machines_as_jobs_wait_for_and_no_more_than_allowed(world: World) -> None:
    pool = world.pool(machines=3, slots=2)
    world.landlord.slow = True
    for job in ("a-1", "b-1", "c-1"):
        with pytest.raises(CapacityError):
            pool.lease(job, job[0])
    until(lambda: len(world.landlord.alive) == 2)
    pool.tick()
    assert len(world.landlord.ever) == 2, "two machines carry three jobs"
    world.landlord.slow = False
    places = [lease(pool, job, job[0]) for job in ("a-1", "b-1", "c-1")]
    assert sorted(places.count(p) for p in set(places)) == [1, 2]
    for job in ("d-1", "e-1", "f-1"):
        lease(pool, job, job[0])
    with pytest.raises(CapacityError, match="a free slot"):
        pool.lease("g-1", "g")
    assert len(world.landlord.ever) == 3


def test_a_trial_goes_on_where_its_files_are(world: World) -> None:
    pool = world.pool()
    first, second = lease(pool, "a-1", "a"), lease(pool, "b-1", "b")
    assert first != second
    done(pool, "a-1")
    done(pool, "b-1")
    assert lease(pool, "b-2", "b") == second
    assert pool.places("b") == [second]


def test_an_idle_machine_is_deleted_in_time_but_not_before_its_jobs_are_copied(
    world: World,
) -> None:
    pool = world.pool(idle_timeout=300.0, settle_timeout=600.0)
    lease(pool, "a-1")
    pool.give_back("a-1")
    world.now += 301.0
    pool.tick()
    assert world.landlord.alive, "what it holds is not copied off"
    pool.settled("a-1")
    pool.tick()
    until(lambda: not pool.left())
    assert world.landlord.alive == set()
    assert world.whats("m-1")[-2:] == ["deleting", "deleted"]


def test_a_machine_nobody_copies_from_is_not_kept_for_ever(world: World) -> None:
    pool = world.pool(idle_timeout=300.0, settle_timeout=600.0)
    lease(pool, "a-1")
    pool.give_back("a-1")
    world.now += 601.0
    pool.tick()
    until(lambda: not pool.left())


def test_a_busy_machine_is_never_idle(world: World) -> None:
    pool = world.pool(idle_timeout=300.0)
    lease(pool, "a-1")
    pool.started("a-1")
    world.now += 1e6
    pool.tick()
    assert world.landlord.alive == {"m-1"}


def test_when_trials_run_out_idle_machines_go_at_once(world: World) -> None:
    pool = world.pool()
    lease(pool, "a-1", "a")
    lease(pool, "b-1", "b")
    done(pool, "b-1")
    pool.expect(2)
    pool.tick()
    assert len(world.landlord.alive) == 2
    pool.expect(1)
    pool.tick()
    until(lambda: len(pool.left()) == 1)
    assert world.landlord.alive == {pool.lease("a-1", "a")}


def test_without_reuse_each_job_has_a_machine_of_its_own(world: World) -> None:
    pool = world.pool(reuse=False, machines=1)
    assert lease(pool, "a-1") == "m-1"
    done(pool, "a-1")
    pool.tick()
    until(lambda: not pool.left())
    assert lease(pool, "a-2") == "m-2"


def test_no_machine_to_be_had_is_waited_for(world: World) -> None:
    world.landlord.refusals = [CapacityError("sold out")]
    pool = world.pool(retry=60.0)
    with pytest.raises(CapacityError):
        pool.lease("a-1", "a")
    until(lambda: not pool.left())
    with pytest.raises(CapacityError, match="sold out"):
        pool.lease("a-1", "a")
    pool.tick()
    assert pool.left() == [], "not tried again at once"
    world.now += 61.0
    assert lease(pool, "a-1", "a") == "m-2"


def test_machines_that_can_never_be_made_are_an_error(world: World) -> None:
    world.landlord.refusals = [PlatformError("no credit", remedy="pay") for _ in range(9)]
    pool = world.pool(machines=1, retry=1.0, failures=3)
    errors: list[PlatformError] = []

    def refused() -> bool:
        world.now += 2.0
        try:
            pool.lease("a-1", "a")
        except CapacityError:
            return False
        except PlatformError as error:
            errors.append(error)
        return True

    until(refused)
    assert "3 machines in a row could not be made: no credit" in str(errors[0])
    assert errors[0].remedy == "pay"
    assert any("no credit" in text for text in world.said)


def test_a_defect_while_making_is_not_repeated_without_pause(world: World) -> None:
    world.landlord.refusals = [ZeroDivisionError("oops")]
    pool = world.pool(retry=60.0)
    with pytest.raises(CapacityError):
        pool.lease("a-1", "a")
    until(lambda: not pool.left())
    with pytest.raises(CapacityError, match="oops"):
        pool.lease("a-1", "a")
    pool.tick()
    assert pool.left() == []


def test_a_machine_that_vanished_is_lost_with_its_jobs(world: World) -> None:
    pool = world.pool()
    name = lease(pool, "a-1", "a")
    world.landlord.alive.clear()
    pool.trouble(name)
    pool.tick()
    until(lambda: not pool.left())
    place = pool.where("a-1")
    assert place is not None
    assert not place.here
    assert world.ledger.machines[name].lost == "it vanished"
    assert world.ledger.cost(world.now + 1e6) == world.ledger.cost(world.now)
    assert lease(pool, "a-2", "a") == "m-2"


def test_a_machine_that_does_not_answer_is_given_up_only_after_a_while(world: World) -> None:
    pool = world.pool(lost_after=600.0)
    name = lease(pool, "a-1", "a")
    pool.started("a-1")
    world.landlord.unreachable.add(name)
    pool.trouble(name)
    for _ in range(5):
        world.now += 100.0
        pool.tick()
        until(lambda: not pool._fleet.machines[name].busy)
    place = pool.where("a-1")
    assert place is not None
    assert place.here, "its job may be well"
    world.now += 200.0
    pool.tick()
    until(lambda: not pool.left())
    assert world.landlord.alive == set(), "what is given up is deleted: it may still be billed"


def test_a_machine_that_answers_again_is_used_on(world: World) -> None:
    pool = world.pool(lost_after=600.0)
    name = lease(pool, "a-1", "a")
    pool.trouble(name)
    pool.tick()
    until(lambda: not pool._fleet.machines[name].busy)
    done(pool, "a-1")
    assert lease(pool, "b-1", "b") == name


def test_close_deletes_everything_also_what_is_being_made(world: World) -> None:
    pool = world.pool()
    lease(pool, "a-1", "a")
    world.landlord.slow = True
    with pytest.raises(CapacityError):
        pool.lease("b-1", "b")
    until(lambda: len(world.landlord.alive) == 2)
    world.landlord.delete_refusals = 2
    pool.close()
    until(lambda: not pool.left())
    assert world.landlord.alive == set()
    assert world.ledger.existing() == []
    with pytest.raises(CapacityError, match="being given back"):
        pool.lease("c-1", "c")
    assert any("refused" in text for text in world.said)


def test_a_pool_made_after_a_crash_goes_on_with_machines_and_jobs(world: World) -> None:
    first = world.pool()
    name = lease(first, "a-1", "a")
    first.started("a-1")
    second = world.pool()  # the first is gone without a word
    until(lambda: world.whats(name)[-1] == "ready")
    place = second.where("a-1")
    assert place is not None
    assert (place.machine, place.here) == (name, True)
    assert world.landlord.ever == [name]
    second.close()
    until(lambda: not second.left())
    assert world.landlord.alive == set()


def test_a_pool_made_after_a_crash_notices_what_has_gone(world: World) -> None:
    first = world.pool()
    name = lease(first, "a-1", "a")
    world.landlord.alive.clear()
    second = world.pool()
    until(lambda: not second.left())
    place = second.where("a-1")
    assert place is not None
    assert not place.here
    assert world.landlord.ever == [name], "it is not made again under the same name"


@pytest.mark.parametrize("killed_after", ["wanted", "asked", "ready", "leased"])
def test_whatever_a_killed_pool_left_is_found_by_name(world: World, killed_after: str) -> None:
    """The first pool's journal is cut off after each kind of event, as by a kill."""
    first = world.pool()
    name = lease(first, "a-1", "a")
    cut = world.whats(name).index(killed_after) + 1
    world.events = world.events[:cut]
    if killed_after == "wanted":
        world.landlord.alive.clear()
    second = world.pool()
    second.close()
    until(lambda: not second.left())
    assert world.landlord.alive == set()
    assert world.ledger.existing() == []


def test_a_lease_whose_job_never_started_does_not_hold_its_slot_for_ever(world: World) -> None:
    pool = world.pool(machines=1, idle_timeout=1e9)
    lease(pool, "a-1", "a")
    world.now += 601.0
    pool.tick()
    assert lease(pool, "b-1", "b") == "m-1"


def test_the_users_own_machine_is_neither_made_nor_deleted(world: World) -> None:
    world.landlord.alive.add("mine")
    pool = world.pool(fixed="mine", machines=1, idle_timeout=1.0)
    assert lease(pool, "a-1", "a") == "mine"
    done(pool, "a-1")
    world.now += 100.0
    pool.tick()
    pool.close()
    until(lambda: not pool.left())
    assert world.landlord.alive == {"mine"}
    assert world.landlord.ever == []


def test_it_is_billed_from_when_the_request_was_taken_or_else_was_made() -> None:
    events = [
        {"what": "wanted", "name": "m", "slots": 1},
        {"what": "asked", "name": "m", "type": "t", "price": PRICE, "text": ""},
        {"what": "made", "name": "m", "text": ""},
        {"what": "accepted", "name": "m", "text": ""},
    ]
    timed = [Event(KIND, data=data, time=10.0 * n) for n, data in enumerate(events)]
    assert Ledger.fold(timed).machines["m"].seconds(100.0) == 10.0
    del timed[2]
    assert Ledger.fold(timed).machines["m"].seconds(100.0) == 20.0


def test_what_it_costs(world: World) -> None:
    pool = world.pool(machines=1)
    lease(pool, "a-1", "a")
    world.now += 1800.0
    done(pool, "a-1")
    world.now += 1800.0
    pool.close()
    until(lambda: not pool.left())
    ledger = world.ledger
    assert ledger.cost(world.now + 1e6) == pytest.approx(PRICE)
    assert ledger.workspace_costs(world.now) == {"a": pytest.approx(PRICE / 2)}
    assert ledger.utilisation(world.now) == pytest.approx(0.5)
    assert ledger.price_per_hour() == 0.0

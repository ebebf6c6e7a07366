"""Where the pool lives: in this process, or, once Ray runs, in an actor that all can reach."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from tao_ray.journal import Event, JournalWriter, read_events
from tao_ray.platforms.base import PlatformError
from tao_ray.platforms.fleet import PoolSettings, Prepare
from tao_ray.platforms.ledger import KIND, Ledger
from tao_ray.platforms.machine import Machine, MachineProvider
from tao_ray.platforms.pool import MachinePool, Place


class PoolSpec(Protocol):
    """How a pool is made, anywhere. Can be pickled."""

    @property
    def settings(self) -> PoolSettings:
        """Of the pool."""

    @property
    def run(self) -> str:
        """Names the run among all runs of this user."""

    def provider(
        self, tell: Callable[[Mapping[str, Any]], None], sleep: Callable[[float], None]
    ) -> MachineProvider:
        """See `MachinePool`."""

    def machine_name(self, number: int) -> str:
        """The name of the run's n-th machine."""

    def machine(self, name: str) -> Machine:
        """A link to a machine that is ready; made without asking anybody."""

    @property
    def prepare(self) -> Prepare | None:
        """What a machine gets before it is ready."""


def make_pool(spec: PoolSpec, journal: JournalWriter) -> MachinePool:
    """The run's pool, knowing what earlier ones have done."""

    def record(data: Mapping[str, Any]) -> float:
        return journal.append(Event(KIND, data=data))[0].time

    def say(text: str) -> None:
        journal.append(Event("said", data={"text": text}))

    return MachinePool(
        spec.provider,
        spec.machine_name,
        spec.settings,
        record,
        prepare=spec.prepare,
        ledger=Ledger.fold(journal.read()),
        say=say,
    )


class PoolHost:
    """Holds the pool and its clock. client: what others use in its place; it can be pickled if Ray
    runs."""

    def __init__(self, spec: PoolSpec, journal: JournalWriter):
        self.client: Pool
        self._stop = threading.Event()
        self._actor: Any = None
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            self._actor = _start_actor(spec, journal)
            self.client = RemotePool(self._actor)
        else:
            pool = make_pool(spec, journal)
            threading.Thread(target=pool.run, args=(self._stop,), daemon=True).start()
            self.client = pool

    def end(self) -> None:
        """End the pool; machines stay as they are."""
        self._stop.set()
        if self._actor is not None:
            import ray

            ray.kill(self._actor)


class RemotePool:
    """The pool, held by an actor. See `MachinePool`."""

    def __init__(self, actor: Any):
        self._actor = actor

    def _ask(self, method: str, *arguments: Any) -> Any:
        import ray

        try:
            return ray.get(self._actor.call.remote(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def lease(self, job: str, workspace: str, image: str | None = None) -> str:
        return cast(str, self._ask("lease", job, workspace, image))

    def where(self, job: str) -> Place | None:
        return cast("Place | None", self._ask("where", job))

    def places(self, workspace: str) -> list[str]:
        return cast(list[str], self._ask("places", workspace))

    def jobs(self, workspace: str) -> list[str]:
        return cast(list[str], self._ask("jobs", workspace))

    def started(self, job: str) -> None:
        self._ask("started", job)

    def give_back(self, job: str) -> None:
        self._ask("give_back", job)

    def settled(self, job: str) -> None:
        self._ask("settled", job)

    def release(self, job: str) -> None:
        self._ask("release", job)

    def expect(self, jobs: int | None) -> None:
        self._ask("expect", jobs)

    def trouble(self, name: str) -> None:
        self._ask("trouble", name)

    def close(self) -> None:
        self._ask("close")

    def left(self) -> list[str]:
        return cast(list[str], self._ask("left"))


class RecordedPool:
    """What the journal says of a pool that is not this process's. Nothing can be leased."""

    def __init__(self, journal: Path):
        self._journal = journal

    def lease(self, job: str, workspace: str, image: str | None = None) -> str:
        raise PlatformError("no machines are being rented", where=f"job {job}")

    def where(self, job: str) -> Place | None:
        ledger = self._ledger()
        lease = ledger.leases.get(job)
        if lease is None:
            return None
        return Place(lease.machine, lease.workspace, ledger.machines[lease.machine].exists)

    def places(self, workspace: str) -> list[str]:
        ledger = self._ledger()
        names = [x.machine for x in ledger.leases.values() if x.workspace == workspace]
        return [name for name in dict.fromkeys(names) if ledger.machines[name].exists]

    def jobs(self, workspace: str) -> list[str]:
        return [x.job for x in self._ledger().leases.values() if x.workspace == workspace]

    def started(self, job: str) -> None:
        """Only the pool keeps records."""

    give_back = settled = release = trouble = started

    def expect(self, jobs: int | None) -> None:
        """Nothing is made."""

    def close(self) -> None:
        """Nothing was made."""

    def left(self) -> list[str]:
        return []

    def _ledger(self) -> Ledger:
        return Ledger.fold(read_events(self._journal) if self._journal.exists() else [])


Pool = MachinePool | RemotePool | RecordedPool


class _PoolActor:
    def __init__(self, spec: PoolSpec, journal: JournalWriter):
        self._pool = make_pool(spec, journal)
        threading.Thread(target=self._pool.run, args=(threading.Event(),), daemon=True).start()

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._pool, method)(*arguments)


def _start_actor(spec: PoolSpec, journal: JournalWriter) -> Any:
    """The actor runs on this host, where the provider's session is. It is made again if it dies."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    kind: Any = ray.remote(_PoolActor)
    actor = kind.options(
        name=f"pool of {spec.run}",
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy=here,
    ).remote(spec, journal)
    ray.get(actor.call.remote("left"))
    return actor

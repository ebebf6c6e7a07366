"""An emulated Brev for each test, and providers that rent from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from brev_emulator.emulator import BrevEmulator
from brev_support import Clock, SshLink, cli_for

from tao_ray.platforms.brev import BrevCli, BrevProvider, Progress, Times


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[BrevEmulator]:
    """An account with a session, everything fast."""
    if reason := BrevEmulator.missing():
        pytest.skip(reason)
    with BrevEmulator(tmp_path / "brev") as made:
        made.log_in()
        made.delays(boot=0.05, ssh=0.0, stop=0.0, delete=0.1)
        yield made


@pytest.fixture
def cli(emulator: BrevEmulator) -> BrevCli:
    return cli_for(emulator)


TIMES = Times()
Rent = Callable[..., BrevProvider]


@pytest.fixture
def progress() -> list[Progress]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rent(emulator: BrevEmulator, progress: list[Progress], clock: Clock) -> Rent:
    """A provider of the given types, at the prices the catalogue has now."""

    def make(
        *types: str, times: Times = TIMES, cli: BrevCli | None = None, **options: Any
    ) -> BrevProvider:
        cli = cli or cli_for(emulator)

        def connect(name: str) -> Any:
            cli.refresh()
            return SshLink(name, cli.ssh_config)

        offers = [row for name in types for row in cli.search() if row.type == name]
        return BrevProvider(
            cli,
            offers,
            connect,
            tell=progress.append,
            times=times,
            clock=clock,
            sleep=clock.sleep,
            **options,
        )

    return make

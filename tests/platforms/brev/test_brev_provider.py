"""Machines against the emulated account: each row of the create and delete tables.

The machines answer over real SSH; waiting is the injected clock's.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from brev_emulator.emulator import BrevEmulator
from brev_support import Clock, cli_for, steps
from conftest import Rent

from tao_ray.platforms.base import LinkError
from tao_ray.platforms.brev import (
    BrevCapacityError,
    BrevError,
    BrevNameTakenError,
    BrevNetworkError,
    BrevTimeoutError,
    Progress,
    Times,
)
from tao_ray.platforms.machine import MachineShape

NORTH, SOUTH, AWS, EIGHT = "l40s-1x.north", "l40s-1x.south", "g6e.xlarge", "l40s-8x.north"
NAME = "tao-run-1"
QUICK = Times(ready=30.0, appear=10.0, delete=60.0)


def test_create_use_delete(emulator: BrevEmulator, rent: Rent, progress: list[Progress]) -> None:
    provider = rent(NORTH)
    machine = provider.create(NAME)
    assert machine.run("pwd").stdout.decode().strip() == str(emulator.home_of(NAME))
    assert steps(progress, "asked", "ready") == [("asked", NORTH), ("ready", None)]
    assert progress[0].step == "asked", "told before anything is created"
    assert progress[0].price_per_hour == 1.03
    instance = provider.instance(NAME)
    assert instance is not None
    assert provider.price(instance) == 1.03
    assert provider.names() == [NAME]
    call = emulator.calls("create")[-1]["arguments"]
    assert call == ["create", NAME, "--type", NORTH, "--detached"]
    provider.delete(NAME)
    assert emulator.instances() == {}, "gone, not merely DELETING"
    assert provider.find(NAME) is None
    (bill,) = emulator.bills()
    assert not bill.alive
    assert 0.0 < bill.billed_s < 60.0


def test_create_is_idempotent(emulator: BrevEmulator, rent: Rent, progress: list[Progress]) -> None:
    rent(NORTH).create(NAME)
    machine = rent(SOUTH).create(NAME)  # by another driver
    assert machine.run("true").code == 0
    assert len(emulator.bills()) == 1
    assert steps(progress, "adopted") == [("adopted", NORTH)]


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        ("no_capacity", "no capacity for this type now"),
        ("quota", "quota is used up"),
        ("credit", "no credit left"),
        ("location", "location behind this type is rejected"),
    ],
)
def test_a_refused_type_is_skipped_and_said(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str, said: str
) -> None:
    emulator.fault("create", effect, type=NORTH)
    rent(NORTH, SOUTH).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [SOUTH]
    assert steps(progress, "asked", "skipped") == [
        ("asked", NORTH),
        ("skipped", NORTH),
        ("asked", SOUTH),
    ]
    assert said in next(item.text for item in progress if item.step == "skipped")


@pytest.mark.parametrize("effect", ["server", "text"])
def test_an_unclear_refusal_is_tried_again_then_skipped(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str
) -> None:
    emulator.fault("create", effect, None, type=NORTH, value="something unheard of")
    rent(NORTH, SOUTH, times=QUICK).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [SOUTH]
    assert steps(progress, "asked") == [("asked", NORTH)] * 3 + [("asked", SOUTH)]


def test_an_unknown_type_is_skipped(emulator: BrevEmulator, rent: Rent) -> None:
    provider = rent(NORTH, SOUTH)
    emulator.fault("create", "text", type=NORTH, value=f"{NORTH} is not a recognized type")
    provider.create(NAME)
    assert [bill.type for bill in emulator.bills()] == [SOUTH]


def test_nothing_to_be_had(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.change(capacity={NORTH: 0, SOUTH: 0})
    with pytest.raises(BrevCapacityError, match="no machine to be had") as caught:
        rent(NORTH, SOUTH).create(NAME)
    assert NORTH in str(caught.value)
    assert SOUTH in str(caught.value)
    assert emulator.bills() == []


def test_a_lost_response_is_adopted(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress]
) -> None:
    emulator.fault("create", "lost_response")
    rent(NORTH, SOUTH).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]
    assert steps(progress, "asked", "adopted", "ready") == [
        ("asked", NORTH),
        ("adopted", NORTH),
        ("ready", None),
    ]


def test_a_create_that_hangs_is_adopted(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.fault("create", "hang")
    rent(NORTH, cli=cli_for(emulator, timeout=4.0)).create(NAME)
    assert len(emulator.bills()) == 1


def test_a_lost_request_is_repeated(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.fault("create", "lost_request")
    rent(NORTH, SOUTH, times=QUICK).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]


def test_a_dead_network_is_not_a_matter_of_types(emulator: BrevEmulator, rent: Rent) -> None:
    provider = rent(NORTH, SOUTH, times=QUICK)
    emulator.fault("create", "lost_request", None)
    with pytest.raises(BrevNetworkError):
        provider.create(NAME)
    assert emulator.bills() == []


@pytest.mark.parametrize("effect", ["half_built", "stuck", "failure", "mute"])
def test_an_instance_that_never_gets_ready_is_deleted_and_the_next_type_tried(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str
) -> None:
    emulator.fault("create", effect, type=NORTH)
    rent(NORTH, SOUTH, times=QUICK).create(NAME)
    first, second = emulator.bills()
    assert (first.type, first.alive) == (NORTH, False)
    assert (second.type, second.alive) == (SOUTH, True)
    told = next(item.text for item in progress if item.step == "abandoned")
    assert "choose another GPU or provider" in told
    if effect == "mute":
        assert "no answer over SSH yet" in told


def test_the_last_type_stuck_leaves_nothing(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.fault("create", "stuck")
    with pytest.raises(BrevCapacityError, match="not ready after 30 s: STARTING"):
        rent(NORTH, times=QUICK).create(NAME)
    assert emulator.alive() == []
    assert emulator.instances() == {}


@pytest.mark.parametrize("effect", ["create_failed", "unhealthy"])
def test_one_that_answers_is_used_whatever_its_state_says(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str
) -> None:
    emulator.fault("create", effect)
    rent(NORTH, SOUTH).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]
    assert effect.upper() in next(item.text for item in progress if item.step == "ready")


def test_a_name_still_being_deleted_is_waited_for(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.delays(delete=0.8)
    emulator.add(NAME, plan="stuck")
    cli_for(emulator).delete(NAME)
    assert emulator.instances() == {NAME: "DELETING"}
    rent(NORTH).create(NAME)
    assert [bill.alive for bill in emulator.bills()] == [False, True]


def test_a_duplicate_that_appears_only_at_create(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.fault("create", "duplicate", 2)
    rent(NORTH, SOUTH).create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]


def test_a_name_that_somebody_else_has(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.fault("create", "duplicate", None)
    with pytest.raises(BrevNameTakenError, match="exists already, or is still being deleted"):
        rent(NORTH, SOUTH).create(NAME)


def test_a_type_that_costs_more_than_reviewed_is_not_created(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress]
) -> None:
    provider = rent(NORTH, SOUTH)
    emulator.price(NORTH, 1.04)
    provider.create(NAME)
    assert [bill.type for bill in emulator.bills()] == [SOUTH]
    assert steps(progress, "asked") == [("asked", SOUTH)]
    assert "it costs 1.04 USD/h now, 1.03 USD/h were reviewed" in progress[0].text


def test_a_type_without_a_price_is_not_created(emulator: BrevEmulator, rent: Rent) -> None:
    provider = rent(NORTH)
    emulator.price(NORTH, 0.0)
    with pytest.raises(BrevCapacityError, match="it has no price now"):
        provider.create(NAME)
    assert emulator.bills() == []


def test_a_stopped_machine_is_started(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.add(NAME)
    cli_for(emulator).stop(NAME)
    rent(NORTH).create(NAME)
    assert len(emulator.bills()) == 1
    assert len(emulator.calls("start")) > 0


def test_a_refresh_that_fails_or_tears_its_file_is_waited_out(
    emulator: BrevEmulator, rent: Rent
) -> None:
    emulator.fault("refresh", "empty_user")
    emulator.fault("refresh", "torn")
    rent(NORTH).create(NAME)
    assert [bill.alive for bill in emulator.bills()] == [True]


@pytest.mark.parametrize("effect", ["garbage", "network", "server", "slow"])
def test_passing_trouble_with_every_question_is_waited_out(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str
) -> None:
    cli = cli_for(emulator)
    provider = rent(NORTH, SOUTH, cli=cli)
    cli.supports("ls", "json")
    cli.supports("create", "type")
    for command in ("ls", "search"):
        emulator.fault(command, effect, 2, value=0.1)
    provider.create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]
    assert (("trouble", None) in steps(progress)) == (effect != "slow")


def test_a_wrong_organisation_is_noticed_before_anything_is_made(
    emulator: BrevEmulator, rent: Rent
) -> None:
    emulator.change(orgs=["lab", "home"])
    provider = rent(NORTH, org="lab")
    emulator.change(active="home")
    with pytest.raises(BrevError, match="active organisation is home, not lab") as caught:
        provider.create(NAME)
    assert "brev set lab" in str(caught.value)
    assert emulator.bills() == []


@pytest.mark.parametrize("command", ["create", "ls", "refresh"])
def test_a_lost_session_is_waited_for(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], command: str
) -> None:
    """It is no reason to try another type, nor to give up a machine that is there already."""
    provider = rent(NORTH, SOUTH, times=QUICK)
    effect = "text" if command == "create" else "401"
    emulator.fault(command, effect, 4, value="unexpected response: 401 Unauthorized")
    provider.create(NAME)
    assert [bill.type for bill in emulator.bills()] == [NORTH]
    assert emulator.alive() == [NAME]
    told = [item for item in progress if "the session has ended" in item.text]
    assert told
    assert {item.step for item in told} == {"trouble"}


def test_a_larger_shape_takes_a_larger_type(emulator: BrevEmulator, rent: Rent) -> None:
    rent(NORTH, EIGHT).create(NAME, MachineShape(gpus=8))
    assert [bill.type for bill in emulator.bills()] == [EIGHT]
    with pytest.raises(BrevCapacityError, match="no offer is large enough"):
        rent(NORTH).create("tao-run-2", MachineShape(gpus=2))


def test_many_at_a_time_share_their_looks(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.delays(boot=1.0)
    provider = rent(NORTH)
    names = [f"tao-run-{number}" for number in range(1, 5)]
    failures: list[BaseException] = []

    def make(name: str) -> None:
        try:
            provider.create(name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(emulator.alive()) == names
    assert provider.names() == names
    assert provider.names("run") == names
    assert provider.names("ru") == []
    for name in names:
        provider.delete(name)
    assert emulator.instances() == {}


def test_find(emulator: BrevEmulator, rent: Rent) -> None:
    provider = rent(NORTH)
    assert provider.find("mine") is None
    emulator.add("mine")
    emulator.delays(boot=60.0)
    emulator.add("slow")
    with pytest.raises(LinkError, match="the instance is STARTING"):
        provider.find("slow")
    machine = provider.find("mine")
    assert machine is not None
    assert machine.run("echo hello").stdout == b"hello\n"
    emulator.kill("mine")
    with pytest.raises(LinkError):
        provider.find("mine")
    assert provider.names() == [], "neither is ours"


@pytest.mark.parametrize("switches", [{"route": "proxy"}, {"match": "on"}, {"match": "required"}])
def test_each_form_of_ssh_configuration_leads_to_the_machine(
    emulator: BrevEmulator, rent: Rent, switches: dict[str, str]
) -> None:
    emulator.behave(**switches)
    machine = rent(NORTH).create(NAME)
    assert machine.run("cat", stdin=b"carried").stdout == b"carried"


# Delete


@pytest.mark.parametrize(
    ("effect", "times"), [("refused", 2), ("ignored", 2), ("lost_response", 1), ("network", 2)]
)
def test_delete_goes_on_until_it_is_done(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], effect: str, times: int
) -> None:
    emulator.add(NAME, plan="stuck")
    emulator.fault("delete", effect, times)
    rent(NORTH).delete(NAME)
    assert emulator.instances() == {}
    assert progress[-1].step == "deleted"
    assert ("trouble", None) in steps(progress) or effect == "ignored"


def test_repeated_trouble_is_met_with_growing_pauses(
    emulator: BrevEmulator, rent: Rent, clock: Clock
) -> None:
    emulator.add(NAME, plan="stuck")
    emulator.fault("delete", "refused", 5)
    rent(NORTH).delete(NAME)
    assert clock.slept[:5] == [5.0, 10.0, 20.0, 40.0, 60.0]


@pytest.mark.parametrize("effect", ["garbage", "empty", "null", "eof", "server"])
def test_one_bad_listing_is_no_proof_of_absence(
    emulator: BrevEmulator, rent: Rent, effect: str
) -> None:
    cli = cli_for(emulator)
    provider = rent(NORTH, cli=cli)
    emulator.add(NAME, plan="stuck")
    cli.supports("ls", "json")
    emulator.fault("ls", effect)
    provider.delete(NAME)
    assert emulator.instances() == {}
    assert emulator.alive() == []


def test_deleting_what_is_not_there(emulator: BrevEmulator, rent: Rent) -> None:
    rent(NORTH).delete(NAME)
    assert emulator.calls("delete") == []


def test_deletion_that_cannot_be_verified_in_time(emulator: BrevEmulator, rent: Rent) -> None:
    emulator.add(NAME, plan="stuck")
    emulator.fault("delete", "refused", None)
    with pytest.raises(BrevTimeoutError, match="not verified to be gone after 60 s") as caught:
        rent(NORTH).delete(NAME, timeout=60.0)
    assert f"brev delete {NAME}" in str(caught.value)


@pytest.mark.parametrize("name", ["mine", "tao-x", "tao--1", "mytao-x-1"])
def test_what_is_not_ours_is_never_deleted_or_made(
    emulator: BrevEmulator, rent: Rent, name: str
) -> None:
    emulator.add(name)
    provider = rent(NORTH)
    with pytest.raises(BrevError, match="not the name of a machine of ours"):
        provider.delete(name)
    with pytest.raises(BrevError, match="not the name of a machine of ours"):
        provider.create(name)
    assert emulator.alive() == [name]


def test_deletion_outlives_a_token(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress], tmp_path: Path
) -> None:
    """The session ends before the deletion; a new token in the file lets it go on."""
    file = tmp_path / "token"
    file.write_text(emulator.token(-1.0))
    emulator.change(renewable=False)
    emulator.add(NAME, plan="stuck")
    provider = rent(NORTH, cli=cli_for(emulator, BREV_API_TOKEN_FILE=str(file)))
    worker = threading.Thread(target=provider.delete, args=(NAME,))
    worker.start()
    while len(progress) < 2:
        worker.join(0.05)
        assert worker.is_alive()
    assert "expired" in progress[0].text
    file.write_text(emulator.token(600.0))
    worker.join(30.0)
    assert emulator.instances() == {}


def test_another_organisation_does_not_make_machines_look_deleted(
    emulator: BrevEmulator, rent: Rent, progress: list[Progress]
) -> None:
    emulator.add(NAME, plan="stuck")
    emulator.change(orgs=["lab", "home"], active="home")
    with pytest.raises(BrevTimeoutError):
        rent(NORTH, org="lab").delete(NAME, timeout=30.0)
    assert emulator.alive() == [NAME]
    assert "switch the organisation" in progress[0].text
    emulator.change(active="lab")
    rent(NORTH, org="lab").delete(NAME)
    assert emulator.alive() == []

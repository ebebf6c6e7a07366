"""Which types may be rented, and names of machines."""

from __future__ import annotations

import pytest
from brev_support import type_row
from hypothesis import given
from hypothesis import strategies as st

from tao_ray.platforms.brev import (
    BrevError,
    InstanceType,
    NoTypeError,
    TypeRequest,
    choose_types,
    is_ours,
    machine_name,
    run_prefix,
)
from tao_ray.platforms.brev.names import check_ours
from tao_ray.platforms.brev.records import instance_types
from tao_ray.platforms.brev.types import same_gpu

CATALOGUE = [
    type_row("cpu", 0.1, gpu_name="", gpu_count=0),
    type_row("a", 1.5),
    type_row("b", 1.0, provider="south"),
    type_row("l40", 0.5, gpu_name="L40"),
    type_row("big", 7.0, gpu_count=8, disk_min_gb=1000.0),
    type_row("twice", 1.2),
    type_row("twice", 1.9, gpu_name="H100 80GB", vram_per_gpu_gb=80.0),
]


def chosen(**wish: object) -> list[tuple[str, float]]:
    rows = choose_types(CATALOGUE, TypeRequest(**wish))  # type: ignore[arg-type]
    return [(row.type, row.price_per_hour) for row in rows]


def test_cheapest_first_within_the_price() -> None:
    assert chosen(gpu="L40S", max_price_per_hour=1.8) == [("b", 1.0), ("a", 1.5)]


def test_a_repeated_type_appears_once_at_its_highest_price() -> None:
    assert chosen(gpu="L40S", max_price_per_hour=2.0)[-1] == ("twice", 1.9)
    assert chosen(gpu="h100", max_price_per_hour=2.0) == [("twice", 1.9)]


def test_machines_without_a_gpu_are_left_out() -> None:
    assert "cpu" not in [name for name, _ in chosen(max_price_per_hour=9.0)]


def test_filters() -> None:
    assert chosen(provider="SOUTH", max_price_per_hour=9.0) == [("b", 1.0)]
    assert chosen(gpus=2, max_price_per_hour=9.0) == [("big", 7.0)]
    assert chosen(min_vram_gb=60, max_price_per_hour=9.0) == [("twice", 1.9)]
    assert chosen(disk_gb=500, max_price_per_hour=9.0) == [("big", 7.0)]  # others start with 120
    assert len(chosen(disk_gb=120, max_price_per_hour=9.0)) == 5
    assert len(chosen(max_price_per_hour=9.0, limit=2)) == 2


def test_named_types_keep_their_order_and_need_no_cap() -> None:
    assert chosen(types=("a", "b")) == [("a", 1.5), ("b", 1.0)]


def test_the_price_is_never_unbounded() -> None:
    with pytest.raises(NoTypeError, match="the price is unbounded") as caught:
        chosen(gpu="L40S")
    assert "max_price_per_hour" in str(caught.value)
    rows = choose_types(CATALOGUE, TypeRequest(gpu="L40S"), reviewed=True)
    assert rows[0].type == "b"


@pytest.mark.parametrize(
    ("wish", "message", "remedy"),
    [
        (
            {"gpu": "L40S", "max_price_per_hour": 0.9},
            r"the cheapest type with gpu: L40S, gpus: 1 is b \(south\) at 1.00 USD/h, above",
            "raise platform.max_price_per_hour to 1.00",
        ),
        (
            {"gpu": "B200", "max_price_per_hour": 9.0},
            "no type in Brev's catalogue has gpu: B200",
            "there are: H100 80GB, L40, L40S",
        ),
        ({"types": ("aa",)}, "has type: aa", "there are: a"),
        ({"provider": "east", "max_price_per_hour": 9.0}, "provider: east", "north, south"),
        (
            {"gpu": "L40", "gpus": 8, "max_price_per_hour": 9.0},
            "has all of gpu: L40, gpus: 8",
            "relax one of them",
        ),
    ],
)
def test_what_stands_in_the_way_is_said(wish: dict[str, object], message: str, remedy: str) -> None:
    with pytest.raises(NoTypeError, match=message) as caught:
        chosen(**wish)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "name", "same"),
    [
        ("L40S", "L40S", True),
        ("l40s", "NVIDIA L40S", True),
        ("L40", "L40S", False),
        ("A100", "A100 80GB", True),
        ("a100-80gb", "A100 80GB", True),
        ("A100", "A10", False),
        ("H100 SXM", "H100", False),
        ("RTX 6000", "RTX PRO 6000", True),
    ],
)
def test_names_of_gpus(wanted: str, name: str, same: bool) -> None:
    assert same_gpu(wanted, name) is same


@given(
    st.lists(
        st.builds(
            InstanceType,
            type=st.sampled_from("abcd"),
            price_per_hour=st.floats(0.01, 20.0),
            gpu_name=st.sampled_from(["", "L40S", "L40"]),
            gpu_count=st.integers(0, 8),
        )
    ),
    st.floats(0.1, 20.0),
)
def test_no_chain_exceeds_the_cap(catalogue: list[InstanceType], cap: float) -> None:
    try:
        chain = choose_types(catalogue, TypeRequest(gpu="L40S", max_price_per_hour=cap))
    except NoTypeError:
        return
    dearest = {row.type: 0.0 for row in catalogue}
    for row in catalogue:
        dearest[row.type] = max(dearest[row.type], row.price_per_hour)
    assert all(dearest[row.type] <= cap for row in chain)
    assert len({row.type for row in chain}) == len(chain)
    prices = [row.price_per_hour for row in chain]
    assert prices == sorted(prices)


def test_rows_without_a_price_are_not_offered() -> None:
    assert instance_types('[{"type": "a"}, {"type": "b", "price_per_hour": 0}]') == []


@given(st.text(), st.integers(0, 9999))
def test_every_run_has_valid_names(run: str, number: int) -> None:
    try:
        name = check_ours(machine_name(run, number))
    except BrevError:
        pytest.fail(f"no valid name for {run!r}")
    assert name.startswith(run_prefix(run))
    assert len(name) <= 63


def test_names_tell_runs_apart() -> None:
    assert machine_name("lr-search", 3) == "tao-lr-search-3"
    assert run_prefix("Lr Search") != run_prefix("lr-search") != run_prefix("lr_search")
    assert run_prefix("x" * 60 + "a") != run_prefix("x" * 60 + "b")
    assert is_ours("tao-a-1-2", "a-1")
    assert not is_ours("tao-a-1-2", "a"), "or the end of run a would delete machines of run a-1"
    assert not is_ours("tao-")
    assert not is_ours("workstation-1")

"""Two modes never meet on a device: what is planned, on what is known of tenants (docs/enforcement.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import FractionAsk
from gpu.translation import Wishes
from scheduler.conditions import messages
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import NodeReason
from tests.scheduler.core.decided import decided, groups_of
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    cluster,
    commit,
    feed,
    node,
    pod,
    recorded,
    reservation,
)
from wire.core import Pod

THIRD = NANO // 3
TENTH = NANO // 10


def running(name: str, mode: str, nano: int = THIRD, **more: Any) -> Pod:
    """A pod that asks for a share in a mode."""
    return recorded(said((FractionAsk(nano),), wishes=Wishes(mode=mode), **more), name)


TOLD_BY = [
    pytest.param(lambda mode: [reservation("g", book={"uid-x": THIRD}, mode=mode)], id="the book"),
    pytest.param(
        lambda mode: [
            reservation("g", book={"uid-x": THIRD}),
            bound(running("x", mode), "n1", ("g", THIRD), reservation="r-g", uuid="GPU-1"),
        ],
        id="a bound pod, in a book without modes",
    ),
]


@pytest.mark.parametrize("tenants", TOLD_BY)
@pytest.mark.parametrize(
    ("there", "coming", "meets"),
    [
        ("mps", "mps", True),
        ("mps", "", True),
        ("", "mps", True),
        ("mps", "hami-core", False),
        ("time-slicing", "mps", False),
    ],
)
def test_a_pod_joins_its_own_mode_and_opens_a_device_rather_than_meet_another(
    tenants: Any, there: str, coming: str, meets: bool
) -> None:
    placed, _ = decided(node(gpus=2), *tenants(there), running("p", coming))
    assert (groups_of(placed)["p"] == "g") is meets
    assert placed["p"].devices[0].mode == coming


@pytest.mark.parametrize("tenants", TOLD_BY)
def test_where_no_device_is_left_to_open_it_waits_and_says_so(tenants: Any) -> None:
    placed, (explained,) = decided(node(gpus=1), *tenants("mps"), running("p", "hami-core"))
    assert placed == {}
    assert explained.verdict.node_reasons == (NodeReason("mode", "", 1),)
    assert "1 node(s) have room only on shared GPUs whose pods use another mode" in (
        messages.told(explained.verdict).message
    )


@pytest.mark.parametrize("strategy", list(Strategy))
def test_pods_of_two_modes_that_are_decided_together_get_devices_of_their_own(strategy: Strategy) -> None:
    pods = [running(f"p{number}", mode) for number, mode in enumerate(("mps", "hami-core", "mps", "", "hami-core"))]
    placed, explained = decided(node(gpus=2), *pods, settings=Settings(gpu_strategy=strategy))
    assert explained == []
    groups = groups_of(placed)
    assert groups["p0"] == groups["p2"]
    assert groups["p1"] == groups["p4"]
    assert groups["p0"] != groups["p1"]


def test_a_placement_under_way_keeps_its_device_for_its_mode() -> None:
    made = cluster(node(gpus=1), running("p", "mps"))
    commit(made, made.decide(0))
    feed(made, running("q", "hami-core"), running("r", "mps"))
    plan = made.decide(0)
    assert made.validate() == []
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Alone)] == ["r"]


def test_kais_mps_pods_share_with_all_others_as_they_do_there() -> None:
    tenant = bound(
        pod("x", fraction="0.1", annotations={"mps": "true"}), "n1", ("g", TENTH), reservation="r-g", uuid="GPU-1"
    )
    placed, _ = decided(
        node(gpus=1),
        reservation("g", book={"uid-x": TENTH}),
        tenant,
        pod("p", fraction="0.1"),
        running("q", "hami-core"),
    )
    assert groups_of(placed) == {"p": "g", "q": "g"}


def test_a_hand_over_of_another_scheduler_says_its_mode() -> None:
    waiting = running("x", "mps")
    made = cluster(node(gpus=1), waiting, bind_request(waiting, "n1", ("g", THIRD), mode="mps"), running("p", "mig"))
    assert not [entry for entry in made.decide(0).entries if isinstance(entry, Alone)]
    assert made.validate() == []

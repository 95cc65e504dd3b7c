"""The largest request that fits, for each thing that is requested."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPUS, Asking, smaller_requests
from tests.scheduler.core.objects import NANO, bound, node, pod, pod_group, reservation
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries

TENTH = NANO // 10
SHARED = (
    node(gpus=1, mem_mib=10_000),
    bound(pod("tenant"), "n1", ("g", 7 * TENTH)),
    reservation("g", "n1", book={"uid-tenant": 7 * TENTH}),
)


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*SHARED, pod("p", fraction="0.5")), ["gpu-fraction=0.3"]),
        ((*SHARED, pod("p", mem=5000)), ["gpu-memory=3000"]),
        ((node(gpus=3), pod("p", gpus=4)), ["gpus=3"]),
        ((node(cpu="8"), pod("p", cpu="10")), ["cpu=8"]),
        ((node(memory="8Gi"), pod("p", memory="10Gi")), ["memory=8160Mi"]),
        ((node(gpus=3), pod("p", gpus=4, cpu="100")), []),
        ((node(gpus=0), pod("p", gpus=4)), []),
        ((node(gpus=5), pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr")), ["gpus=1"]),
    ],
)
def test_the_largest_amount_that_fits_is_found(objects: tuple[Any, ...], found: list[str]) -> None:
    assert spelled(edits(smaller_requests, tries(*objects))) == found


def test_all_pods_of_the_group_that_request_it_are_changed() -> None:
    tried = tries(
        node(), pod_group("g", 2), pod("p", gpus=2, group="g"), pod("q", gpus=4, group="g"), pod("r", group="g")
    )
    changed = changes(tried, Asking(GPUS, 1))
    assert sorted(uid for change in changed for uid in change.uids) == ["uid-p", "uid-q"]  # type: ignore[attr-defined] # AnotherAsk
    assert {change.cls.demand.gpus for change in changed} == {1}  # type: ignore[attr-defined] # as above


def test_what_is_not_requested_is_refused_with_what_is() -> None:
    tried = tries(node(), pod("p", gpus=1, cpu="1"))
    with pytest.raises(NotPossible, match=r"gpu-fraction: ns/p requests no amount of it; it requests cpu, gpus"):
        changes(tried, Asking(FRACTION, TENTH))
    assert Asking(CPU, 1_500).spelled() == "cpu=1500m"

"""Which devices may come when one is opened, from what was seen (docs/design/opening.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.container_devices import Identity, Pin
from gpu.request import FractionAsk
from gpu.translation import Cards
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.model.plan import Attempt, Explain, Join
from scheduler.core.nodes.device_sightings import Prospect
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import NANO, bound, cluster, ended, node, pod, recorded, reservation
from wire import names
from wire.core import Node

HALF, TENTH = NANO // 2, NANO // 10
A, B, C = Identity("GPU-a", 0), Identity("GPU-b", 1), Identity("GPU-c", 2)


@pytest.mark.parametrize(
    ("prospect", "pin", "may"),
    [
        (Prospect(devices=4), Pin(index=3), True),
        (Prospect(devices=4), Pin(index=4), False),
        (Prospect(devices=4, held=frozenset({B})), Pin(index=1), False),
        (Prospect(devices=4, known=frozenset({B})), Pin(index=1), True),
        (Prospect(devices=4, known=frozenset({B})), Pin(index=1, not_uuids=("GPU-b",)), False),
        (Prospect(devices=4, held=frozenset({Identity("GPU-a", -1)})), Pin(index=1), False),
        (Prospect(devices=4), Pin(uuids=("GPU-a",)), False),
        (Prospect(devices=4, known=frozenset({A})), Pin(uuids=("GPU-a",)), True),
        (Prospect(devices=4, known=frozenset({A})), Pin(index=1, uuids=("GPU-a",)), False),
        (Prospect(devices=4, known=frozenset({A})), Pin(not_uuids=("GPU-a",)), True),
        (Prospect(devices=4, known=frozenset({A}), is_all=True), Pin(not_uuids=("GPU-a",)), False),
        (Prospect(devices=4, known=frozenset({A}), is_all=True), Pin(index=1), False),
        (Prospect(devices=4, known=frozenset({A}), is_all=True), Pin(index=0), True),
    ],
)
def test_a_device_that_is_named_may_come_unless_something_speaks_against_it(
    prospect: Prospect, pin: Pin, may: bool
) -> None:
    assert prospect.may_bring(pin) is may


def _wanting(index: int = -1, **cards: Any) -> Any:
    return recorded(said((FractionAsk(HALF, index=index),), cards=Cards(**cards)))


def _kind(made: Cluster) -> str:
    """How the one pod that waits is placed, or why not."""
    plan = made.decide(0)
    assert made.validate() == []
    (entry,) = (entry for entry in plan.entries if isinstance(entry, (Attempt, Join, Explain)))
    if not isinstance(entry, Explain):
        return type(entry).__name__
    return "+".join(reason.kind for reason in entry.verdict.node_reasons)


LISTED = {names.NODE_UUIDS: "GPU-a,GPU-b"}


@pytest.mark.parametrize(
    ("objects", "wanted", "kind"),
    [
        ([node(gpus=2)], _wanting(1), "Attempt"),
        ([node(gpus=2)], _wanting(2), "pinned"),
        ([node(gpus=2)], _wanting(uuids=("GPU-b",)), "pinned"),
        ([node(gpus=2, annotations=LISTED)], _wanting(uuids=("GPU-b",)), "Attempt"),
        ([node(gpus=2, annotations=LISTED)], _wanting(uuids=("GPU-x",)), "pinned"),
        ([node(gpus=2, annotations={names.NODE_UUIDS: "GPU-a, many"})], _wanting(uuids=("GPU-a",)), "pinned"),
        ([node(gpus=2)], _wanting(not_uuids=("GPU-b",)), "Attempt"),
        ([node(gpus=2), reservation("g", book={"x": 9 * TENTH}, uuid="GPU-a", index=0)], _wanting(0), "pinned-full"),
        (
            [node(gpus=2), bound(pod("w", gpus=1), "n1"), reservation("g", book={"x": TENTH}, uuid="GPU-a", index=0)],
            _wanting(1),
            "pinned-whole",
        ),
        (
            [node(gpus=2), bound(pod("w", gpus=1), "n1"), reservation("g", book={"x": TENTH}, uuid="GPU-a", index=0)],
            _wanting(2),
            "pinned",
        ),
    ],
)
def test_what_is_named_is_opened_where_it_may_come_and_else_the_reason_is_said(
    objects: list[Any], wanted: Any, kind: str
) -> None:
    assert _kind(cluster(*objects, wanted)) == kind


def test_a_uuid_that_was_seen_is_known_when_its_reservation_is_gone() -> None:
    seen = reservation("g", uuid="GPU-a", index=0)
    made = cluster(node(gpus=2), seen)
    made.remove_pod(seen.metadata.uid)
    made.upsert_pod(_wanting(uuids=("GPU-a",)))
    assert _kind(made) == "Attempt"


def _replaced(name: str = "n1") -> Node:
    made = node(name, gpus=2)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid="another"))


@pytest.mark.parametrize("is_seen_to_go", [True, False])
def test_a_node_that_comes_back_under_its_name_is_another(*, is_seen_to_go: bool) -> None:
    seen = reservation("g", uuid="GPU-a", index=0)
    made = cluster(node(gpus=2), seen)
    made.remove_pod(seen.metadata.uid)
    if is_seen_to_go:
        made.remove_node("n1")
    made.upsert_node(_replaced())
    made.upsert_pod(_wanting(uuids=("GPU-a",)))
    assert _kind(made) == "pinned"


def test_what_was_with_whole_gpus_of_another_node_of_that_name_keeps_nobody_waiting() -> None:
    whole, held = bound(pod("w", gpus=1), "n1"), reservation("g", uuid="GPU-a", index=0)
    made = cluster(node(gpus=2), whole, held, _wanting(1))
    assert _kind(made) == "pinned-whole"
    made.remove_pod(held.metadata.uid)
    made.replace_nodes([node_record(_replaced())])
    assert _kind(made) == "Attempt"


def test_once_all_devices_were_out_the_rest_is_with_whole_gpus_until_one_of_those_pods_has_ended() -> None:
    whole, held = bound(pod("w", gpus=1), "n1"), reservation("g", uuid="GPU-a", index=0)
    made = cluster(node(gpus=2), whole, held, _wanting(1))
    assert _kind(made) == "pinned-whole"
    made.remove_pod(held.metadata.uid)
    assert _kind(made) == "pinned-whole"  # a device is free again, and it is known which one
    made.upsert_pod(pod("other", gpus=1, bound_to="n1"))
    assert _kind(made) == "insufficient"
    made.remove_pod("uid-other")
    assert _kind(made) == "pinned-whole"
    made.upsert_pod(ended(whole))
    assert _kind(made) == "Attempt"


def test_an_ill_device_that_is_well_again_is_looked_for_again() -> None:
    held = reservation("g", uuid="GPU-a", index=0)
    made = cluster(node(gpus=1), held)
    made.refresh()
    made.remove_pod(held.metadata.uid)
    made.upsert_pod(_wanting(uuids=("GPU-b",)))
    assert _kind(made) == "pinned"
    made.upsert_node(node(gpus=2, annotations=LISTED))
    assert _kind(made) == "Attempt"


def test_what_is_under_way_is_no_inventory() -> None:
    """A device that has not told its name may be the one."""
    silent, told = reservation("g", book={"x": TENTH}, uuid=""), reservation("h", uuid="GPU-a", index=0)
    made = cluster(node(gpus=2), silent, told, _wanting(1))
    assert _kind(made) == "pinned-room"

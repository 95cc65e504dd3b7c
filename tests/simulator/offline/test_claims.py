"""Claims that wait for their first consumer are bound at once, and their pods go where the volumes are."""

from __future__ import annotations

from simulator.offline.shell import settle
from tests.scheduler.core.nodes.mounting import mounting
from tests.scheduler.core.objects import claim, free_volume, node, storage_class
from tests.simulator.offline.given import places, shell

WAITS = "WaitForFirstConsumer"


def test_pods_get_the_volumes_that_are_there_and_the_others_wait() -> None:
    made = shell(
        node("n1", 2),
        node("n2", 2),
        storage_class("slow", WAITS),
        free_volume("pv", node="n2"),
        claim("x", bound=False, storage_class="slow"),
        claim("y", bound=False, storage_class="slow"),
        mounting("px", "x"),
        mounting("py", "y"),
    )
    assert settle(made).is_at_rest
    assert places(made) == {"px": "n2", "py": ""}
    bound = made.cluster.storage.claims.get(("ns", "x"))
    assert bound is not None
    assert (bound.volume, bound.is_bound) == ("pv", True)
    assert made.cluster.validate() == []


def test_a_volume_that_is_made_can_be_used_on_all_nodes() -> None:
    made = shell(
        node("n1", 1),
        node("n2", 1),
        storage_class("fast", WAITS, provisioner="disk.csi.example"),
        claim("data", bound=False, storage_class="fast", modes=["ReadWriteMany"]),
        *(mounting(name, "data") for name in ("a", "b")),
    )
    assert settle(made).is_at_rest
    assert sorted(places(made).values()) == ["n1", "n2"]

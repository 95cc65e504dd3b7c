"""What the cache keeps, and what finding it costs."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from tests.conftest import AnyioBackend
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import NANO, bound, changed, ended, feed, node, pod, pod_group, reservation
from tests.scheduler.watch.lists import cache, listed
from tests.steps import counted
from wire import names
from wire.core import Condition, Pod


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_a_deletion_costs_no_more_for_the_reservations_of_others() -> None:
    """Thousands of pods that end one after the other would look through thousands of reservations each."""

    async def cost(others: int) -> int:
        made, sink = cache()
        await listed(sink, pod("a"), *(reservation(f"g{number}") for number in range(others)))
        with counted() as steps:
            made.forget_pod("uid-a")
        return steps.taken

    assert await cost(300) <= 1.2 * await cost(1)


def _used(number: int) -> tuple[Pod, Pod]:
    """A reservation on a node of its own, and a tenant whose grant shows that its device was verified."""
    group, node_name, uuid = f"g{number}", f"n{number}", f"GPU-{number}"
    share = bound(pod(f"t{number}", fraction="0.5"), node_name, (group, NANO // 2), reservation=f"r-{group}", uuid=uuid)
    return reservation(group, node_name, uuid=uuid), share


async def test_a_reservation_that_is_gone_costs_no_more_for_the_verified_devices_of_others() -> None:
    async def cost(others: int) -> int:
        made, sink = cache()
        await listed(sink, *(obj for number in range(others + 1) for obj in _used(number)))
        with counted() as steps:
            made.forget_pod("r-g0")
        assert not made.cluster.is_verified("r-g0", "GPU-0")
        return steps.taken

    assert await cost(300) <= 1.2 * await cost(1)


async def test_a_node_that_comes_back_asks_its_own_reservations_whatever_others_there_are() -> None:
    async def cost(others: int) -> int:
        made, sink = cache()
        silent = [reservation(f"s{number}", "n0", uuid="") for number in range(2)]
        await listed(sink, *silent, *(reservation(f"g{number}", f"n{number + 1}", uuid="") for number in range(others)))
        asked: list[str] = []
        made.on_device_asked = asked.append
        with counted() as steps:
            made.ask_again("n0")
        assert asked == ["r-s0", "r-s1"]
        return steps.taken

    assert await cost(300) <= 1.2 * await cost(1)


async def test_a_reservation_is_found_by_its_uid_whatever_others_there_are() -> None:
    async def cost(others: int) -> int:
        made, sink = cache()
        await listed(sink, *(reservation(f"g{number}") for number in range(others + 1)))
        with counted() as steps:
            found = made.reservation(f"r-g{others}")
        assert found is not None
        assert found.group == f"g{others}"
        made.forget_pod(found.uid)
        assert made.reservation(found.uid) is None
        return steps.taken

    assert await cost(300) <= 1.2 * await cost(1)


async def test_of_two_reservations_of_a_group_the_deletion_of_the_older_leaves_the_newer() -> None:
    made, sink = cache()
    old = reservation("g", uid="uid-old")
    await listed(sink, old)
    new = changed(reservation("g", uid="uid-new"))
    sink.upsert(new)
    made.forget_pod("uid-old")
    assert {group: held.uid for group, held in made.reservations.items()} == {"g": "uid-new"}
    made.forget_pod("uid-new")
    assert made.reservations == {}


async def test_that_a_gang_was_finished_is_forgotten_with_its_pod_group() -> None:
    made, sink = cache()
    over = ended(pod("a", gpus=1, bound_to="n1", group="gang"), names.SUCCEEDED)
    made.note_pod_group(pod_group("gang", 1))
    await listed(sink, over)
    made.forget_gone()
    assert made.finished == {("ns", "gang")}
    made.forget_pod_group("ns", "gang")
    await listed(sink, over)
    made.forget_gone()
    assert made.finished == set()


async def test_conditions_and_fences_of_waiting_pods_are_kept() -> None:
    made, sink = cache()
    one = pod("a", annotations={names.FENCED: "attempt", names.FENCED_BECAUSE: "why"})
    said = Condition(type="PodScheduled", status="False")
    await listed(sink, msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, conditions=[said])))
    waiting = made.waiting["uid-a"]
    assert (waiting.conditions, waiting.fences, waiting.fenced_because) == ((said,), ("attempt",), "why")


async def test_pods_share_the_text_that_they_have_in_common() -> None:
    made, sink = cache()
    pods = [msgspec.json.decode(msgspec.json.encode(pod(name, group="gang", bound_to="n1")), type=Pod) for name in "ab"]
    await listed(sink, *pods)
    a, b = made.cluster.pod("uid-a"), made.cluster.pod("uid-b")
    assert a is not None
    assert b is not None
    for field in ("namespace", "node", "pod_group", "created", "cls"):
        assert getattr(a, field) is getattr(b, field)


async def test_a_standby_keeps_no_devices_of_pods_that_were_deleted_long_ago() -> None:
    """It decides nothing, and its table would grow until it leads."""
    made, _ = cache()
    old = bound(claiming("old", "c"), "a")
    feed(made.cluster, node("a", gpus=0), GPU, offered("a"), old, claimed("c", on=("a", "d0"), by=("uid-old",)))
    made.forget_pod("uid-old")
    feed(made.cluster, claimed("c"))
    made.forget_gone()
    assert len(made.cluster.claims.vanished.kept) == 1
    await anyio.sleep(3600)
    made.forget_gone()
    assert made.cluster.claims.vanished.size == 0

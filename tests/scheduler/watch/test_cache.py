"""What the cache keeps, and what finding it costs."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import msgspec
import pytest

from scheduler.core.nodes.table import GPUS
from scheduler.watch.cache import CacheListeners, Shown, ShownObjects
from scheduler.watch.sinks import NodeSink, PodSink
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import NANO, bound, changed, ended, feed, node, pod, pod_group, reservation
from tests.scheduler.watch.lists import cache, listed
from tests.steps import counted
from tests.values import there
from wire import names
from wire.core import Condition, Pod


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
        asked: list[str] = []
        made, sink = cache(CacheListeners(device_asked=asked.append))
        silent = [reservation(f"s{number}", "n0", uuid="") for number in range(2)]
        await listed(sink, *silent, *(reservation(f"g{number}", f"n{number + 1}", uuid="") for number in range(others)))
        asked.clear()
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
    a, b = there(made.cluster.pod("uid-a")), there(made.cluster.pod("uid-b"))
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


def made() -> tuple[ShownObjects[str, str], list[str]]:
    changed = list[str]()
    objects = ShownObjects[str, str](changed.append)
    objects.note("a", Shown("uid-1", "5", "five"))
    return objects, changed


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        pytest.param(Shown("uid-1", "6", "six"), "six", id="newer"),
        pytest.param(Shown("uid-1", "4", "four"), "five", id="older"),
        pytest.param(Shown("uid-2", "4", "four"), "four", id="another object of that name"),
    ],
)
def test_the_newest_version_of_an_object_stays(shown: Shown[str], what: str) -> None:
    objects, changed = made()
    objects.note("a", shown)
    known = there(objects.get("a"))
    assert known.what == what
    assert changed == ["a"] * (1 if what == "five" else 2)


def test_an_object_that_is_gone_is_told_once() -> None:
    objects, changed = made()
    objects.drop("a")
    objects.drop("a")
    assert objects.get("a") is None
    assert changed == ["a", "a"]


def test_what_a_list_does_not_name_is_gone() -> None:
    objects, changed = made()
    objects.replace({"b": Shown("uid-3", "7", "seven")})
    assert objects.get("a") is None
    assert objects.get("b") == Shown("uid-3", "7", "seven")
    assert changed == ["a", "a", "b"]


# The sinks of the cache's reflectors: what a list may and may not do to it.


async def turns_during(sink: PodSink, *pods: Pod) -> int:
    """How often another task runs while a list is taken."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    kept = [sink.keep(obj) for obj in pods]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        await sink.replace(kept)
        taken = turns - before
        tasks.cancel_scope.cancel()
    return taken


async def test_only_the_first_list_lets_others_run_while_it_is_taken() -> None:
    made, sink = cache()
    await NodeSink(made).replace([NodeSink(made).keep(node(f"n{i}")) for i in range(400)])
    pods = [pod(f"p{i}", gpus=1, bound_to=f"n{i % 400}") for i in range(3000)]
    assert await turns_during(sink, *pods) >= 3000 // 1024 + 400 // 128 + 3000 // 128
    assert await turns_during(sink, *(changed(obj) for obj in pods)) == 0


async def test_after_the_first_list_the_ledger_is_counted() -> None:
    made, sink = cache()
    await NodeSink(made).replace([NodeSink(made).keep(node())])
    await listed(sink, pod("a", gpus=3, bound_to="n1"))
    ledger = made.cluster.ledger
    assert int(ledger.table.free[GPUS, ledger.row_of["n1"]]) == 5
    assert made.cluster.queues.sums.sums["default-queue"].held.gpu_nano == 3 * NANO
    assert made.cluster.validate() == []


async def test_what_is_not_on_a_list_is_gone_and_those_who_care_are_told() -> None:
    told: list[str] = []
    made, sink = cache(CacheListeners(pod=told.append))
    held = reservation("g")
    await listed(sink, pod("a"), pod("b", gpus=1, bound_to="n1"), held)
    told.clear()
    await listed(sink, pod("c"))
    assert made.cluster.pods_beside({"uid-c"}) == []
    assert set(made.waiting) == {"uid-c"}
    assert made.reservations == {}
    assert {"uid-a", "uid-b", "uid-c", held.metadata.uid} <= set(told)


async def test_a_pod_that_the_cache_knows_in_this_version_is_not_read_again() -> None:
    made, sink = cache()
    same, other = pod("a"), pod("b")
    await listed(sink, same, other)
    assert sink.keep(same) == "uid-a"
    assert not isinstance(sink.keep(changed(other)), str)
    before = made.cluster.pod("uid-a")
    await listed(sink, same, changed(other))
    assert made.cluster.pod("uid-a") is before


async def test_pods_of_one_list_that_are_alike_are_read_once() -> None:
    _, sink = cache()
    kept = [sink.keep(pod(name, gpus=2, labels={"app": "a"})) for name in "ab"]
    one, other = (each.pod.record for each in kept if not isinstance(each, str))
    assert one is not None
    assert other is not None
    assert one.labels is other.labels
    await sink.replace(kept)
    later = sink.keep(pod("c", gpus=2, labels={"app": "a"}))
    assert not isinstance(later, str)
    assert later.pod.record is not None
    assert later.pod.record.labels is not one.labels  # of the list before nothing is kept


async def test_an_answer_that_came_while_the_list_did_is_newer_than_the_list() -> None:
    made, sink = cache()
    first = pod("a", gpus=1)
    await listed(sink, first)
    on_list = changed(first)
    kept = [sink.keep(on_list)]
    bound = msgspec.structs.replace(first.spec, node_name="n1")
    made.note_pod(changed(msgspec.structs.replace(first, spec=bound)))
    await sink.replace(kept)
    known = there(made.cluster.pod("uid-a"))
    assert known.node == "n1"
    assert made.waiting == {}


async def test_a_pod_that_ended_in_the_gap_is_seen_to_have_ended() -> None:
    freed: list[str] = []
    made, sink = cache(CacheListeners(device_freed=freed.append))
    one = pod("a", gpus=1, bound_to="n1", group="gang")
    await listed(sink, one)
    freed.clear()
    await listed(sink, ended(one, names.SUCCEEDED))
    assert made.cluster.pod("uid-a") is None
    assert made.finished == {("ns", "gang")}
    assert freed == [""]

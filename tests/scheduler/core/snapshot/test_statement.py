"""The working copy of a decision: what is charged on it, and what is taken back."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu import book as books
from gpu.book import Book
from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Placement
from scheduler.core.nodes.table import GPUS, Table
from scheduler.core.snapshot.statement import Statement
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place, running
from tests.scheduler.core.objects import NANO, bound, changed, claim, cluster, csi_node, node, pod, reservation, volume
from tests.scheduler.core.stories.test_slices import SLICE, asking, cut, single
from tests.values import there
from tests.whole import examples
from wire import names
from wire.core import Pod

_HALF = NANO // 2


def test_devices_that_were_given_back_on_paper_are_open_again_when_that_is_taken_back() -> None:
    statement = Placer(cluster(node(), reservation("g1", "n1", book={})).snapshot()).statement
    before = statement.table.devices[0]
    mark = statement.checkpoint()
    statement.retire(0, frozenset({"g1"}))
    assert [(device.is_open, device.is_leaving) for device in statement.table.devices[0]] == [(False, True)]
    statement.rollback(mark)
    assert statement.table.devices[0] == before
    assert [device.is_open for device in before] == [True]


def test_a_resource_that_a_node_does_not_have_gives_no_room() -> None:
    made = cluster(node(gpus=8), pod("p", gpus=2))
    record = there(made.pod("uid-p"))
    room = Placer(made.snapshot()).statement.room(0, record.cls.demand, ["", "nvidia.com/gpu"])
    assert room.devices == {"nvidia.com/gpu": 6}
    assert not room.has("")


# --- any charges -------------------------------------------------------------------------------------------------
_MOUNTS = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
_PODS = {
    "half": pod("half", fraction="0.5"),
    "tenth": pod("tenth", fraction="0.1"),
    "two-thirds": pod("two-thirds", fraction="0.7", devices=2),
    "memory": pod("memory", mem=9_000),
    "whole": pod("whole", gpus=1),
    "two": pod("two", gpus=2, cpu="1"),
    "cpu": pod("cpu", cpu="2"),
    "disk": pod("disk", cpu="1", spec=_MOUNTS),
    "slice": asking(name="slice"),
}
_NODES: list[Any] = [
    node("cards", 4, mem_mib=40_000),
    node("mixed", 2, annotations={names.NODE_CARDS: "20000,40000"}),
    cut("cut", 3),
    single("single", 2),
    node("plain", 0, cpu="4"),
]


def _reservations(draw: st.DrawFn) -> list[Any]:
    found: list[Any] = []
    for number in range(draw(st.integers(0, 5))):
        of = draw(st.sampled_from(["cards", "cards", "mixed", "cut", "single"]))
        found.append(
            reservation(
                f"g{number}",
                of,
                uid=f"r{number}",
                book=draw(st.sampled_from([{}, {}, {"t": _HALF}, {"t": NANO // 10}, {"t": NANO}])),
                uuid=draw(st.sampled_from(["", f"GPU-{number}", f"GPU-{number}", "GPU-same"])),
                deleting=draw(st.sampled_from([False, False, True])),
                is_ill=draw(st.sampled_from([False, False, True])),
                mem_mib=draw(st.sampled_from([0, 20_000])),
                resource=SLICE if of == "cut" else names.GPU_RESOURCE,
            )
        )
    return found


@st.composite
def _clusters(draw: st.DrawFn) -> Cluster:
    disk: list[Any] = [
        claim("data", "pv"),
        volume("pv", csi=("disk", "h")),
        csi_node("plain", disk=1),
        csi_node("cards", disk=1),
    ]
    return cluster(*_NODES, *disk, *_reservations(draw), *_PODS.values())


def _image(statement: Statement) -> list[Any]:
    table = statement.table
    arrays = (table.free, table.extra, table.share_nano, table.share_mib, table.slice_nano, table.slice_row)
    # Rows of slots that no node has had a device for may be there or not.
    kept = [[row for row in array.tolist() if set(row) != {-1}] for array in arrays]
    return [
        *kept,
        list(table.devices),
        set(statement.claims),
        statement.attaching.fits([("disk", "other")], slice(None)).tolist(),
    ]


def _written_anew(statement: Statement) -> list[Any]:
    """The image of the same statement with every node's devices written as a whole."""
    table = statement.table
    kept = (table, table.taken(slice(None)))
    statement.table = kept[1]
    for position, of in enumerate(statement.nodes):
        statement.table.put_devices(position, of, statement.table.devices[position])
    found = _image(statement)
    statement.table = kept[0]
    return found


_STEPS = st.lists(st.tuples(st.sampled_from(["place", "place", "place", "room", "undo"]), st.sampled_from([*_PODS])))


@settings(max_examples=examples(15))
@given(_clusters(), _STEPS)
def test_after_any_charges_the_copy_is_as_if_written_anew_and_goes_back_to_what_it_was(
    made: Cluster, steps: list[tuple[str, str]]
) -> None:
    waiting = {of.name: of for of in made.waiting()}
    placer = Placer(made.snapshot())
    statement = placer.statement
    images = [(statement.checkpoint(), _image(statement))]
    for step, name in steps:
        match step:
            case "place":
                placer.place(waiting[name])
            case "room" if name in {"whole", "two"}:
                placer.wait_for_device(waiting[name])
            case "undo":
                mark, before = images[len(images) // 2]
                statement.rollback(mark)
                assert _image(statement) == before
                images = images[: len(images) // 2 + 1]
            case _:
                continue
        assert _image(statement) == _written_anew(statement)
        images.append((statement.checkpoint(), _image(statement)))
    statement.rollback(0)
    assert _image(statement) == images[0][1]
    assert statement.charged() == set()


def test_devices_that_were_given_back_on_paper_stay_so_when_a_pod_of_their_node_is_evicted() -> None:
    made = cluster(node(gpus=2), reservation("g1", "n1", book={}), pod("w", gpus=1, bound_to="n1"))
    statement, victim = Placer(made.snapshot()).statement, there(made.pod("uid-w"))
    statement.retire(0, frozenset({"g1"}))
    statement.evict(victim)
    assert [(device.is_open, device.is_leaving) for device in statement.table.devices[0]] == [(False, True)]
    assert statement.table.free[GPUS, 0] == 1


def test_several_pods_are_evicted_at_once_as_one_after_the_other() -> None:
    pods = [bound(pod(name, gpus=1), on) for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))]
    made = cluster(node("n1", 4), node("n2", 4), *pods)
    statement = Placer(made.snapshot()).statement
    before = _image(statement)
    records = [record for name in "abc" if (record := made.pod(f"uid-{name}")) is not None]
    for record in records:
        statement.evict(record)
    one_by_one = _image(statement)
    statement.rollback(0)
    assert _image(statement) == before
    statement.evict(*records)
    assert _image(statement) == one_by_one
    assert statement.table.free[GPUS].tolist() == [4, 4]
    statement.rollback(0)
    assert _image(statement) == before


def test_a_pod_of_a_node_that_is_gone_can_not_be_evicted() -> None:
    made = cluster(node(), pod("w", gpus=1, bound_to="gone"))
    victim = there(made.pod("uid-w"))
    with pytest.raises(LookupError):
        Placer(made.snapshot()).statement.evict(victim)


# --- nominations -----------------------------------------------------------------------------------------------------
def test_the_charge_of_a_nomination_is_taken_off_and_put_back_and_others_stay() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(name, gpus=gpus) for name, gpus in (("h", 3), ("k", 2), ("o", 1))))
    made.commits.nominations.put(nomination(place("h"), place("k", node_name="n2"), id_="i"))
    made.commits.nominations.put(nomination(place("o"), id_="j"))
    statement = Placer(made.snapshot()).statement
    before, marks = _image(statement), [statement.checkpoint()]
    free = [statement.table.free[GPUS].tolist()]
    for is_off in (True, False, True):
        statement.lift("i", ["n1", "n2", "gone"], is_off=is_off)
        marks.append(statement.checkpoint())
        free.append(statement.table.free[GPUS].tolist())
    assert free == [[4, 6], [7, 8], [4, 6], [7, 8]]
    statement.rollback(marks[2])
    assert statement.table.free[GPUS].tolist() == [4, 6]
    statement.rollback(marks[0])
    assert _image(statement) == before


def test_a_victim_that_goes_on_paper_leaves_its_room_to_the_nominee() -> None:
    made = cluster(node(), running("v", 5), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    statement, victim = Placer(made.snapshot()).statement, there(made.pod("uid-v"))
    free = [int(statement.table.free[GPUS, 0])]
    statement.evict(victim)
    free.append(int(statement.table.free[GPUS, 0]))
    statement.lift("i", ["n1"])
    assert [*free, int(statement.table.free[GPUS, 0])] == [3, 4, 8]


# --- evictions ---------------------------------------------------------------------------------------------------
_TENANTS = {"t1": NANO // 2, "t2": NANO // 10, "t3": NANO // 4}


@st.composite
def _occupied(draw: st.DrawFn) -> list[Any]:
    """Nodes on which pods run: whole GPUs, shares with and without their book entry, foreign ones."""
    found: list[Any] = [*_NODES, *_PODS.values()]
    for number in range(draw(st.integers(1, 4))):
        of = draw(st.sampled_from(["cards", "mixed"]))
        tenants = {f"{uid}-{number}": nano for uid, nano in _TENANTS.items() if draw(st.booleans())}
        booked = {uid: nano for uid, nano in tenants.items() if draw(st.integers(0, 3))}
        uuid = draw(st.sampled_from([f"GPU-{number}", f"GPU-{number}", ""]))
        group, has_pod = f"g{number}", bool(draw(st.integers(0, 4)))
        if has_pod:
            found.append(reservation(group, of, uid=f"r{number}", book=booked, uuid=uuid))
        for uid, nano in tenants.items():
            share = pod(uid, uid=uid, fraction=str(nano / NANO), cpu="1")
            found.append(bound(share, of, (group, nano), reservation=f"r{number}", uuid=uuid))
    for number in range(draw(st.integers(0, 3))):
        of = draw(st.sampled_from(["cards", "mixed", "plain"]))
        found.append(pod(f"w{number}", uid=f"w{number}", gpus=int(of != "plain"), cpu="3", bound_to=of))
    return found


def _without(objects: list[Any], evicted: set[str], retired: set[str]) -> list[Any]:
    """The same objects once these pods are gone, and these groups' reservations are being deleted."""
    left = [obj for obj in objects if not (isinstance(obj, Pod) and obj.metadata.uid in evicted)]
    return [_with_book(obj, evicted, retired) if _is_reservation(obj) else obj for obj in left]


def _is_reservation(obj: Any) -> bool:
    return isinstance(obj, Pod) and obj.metadata.namespace == names.RESERVATION_NAMESPACE


def _with_book(held: Pod, evicted: set[str], retired: set[str]) -> Pod:
    annotations, labels = held.metadata.annotations or {}, held.metadata.labels or {}
    entries = books.parse(annotations[names.TENANTS]).entries
    book = books.render(Book({uid: entry for uid, entry in entries.items() if uid not in evicted}))
    gone_at = "2026-01-02T00:00:00Z" if labels[names.GPU_GROUP_LABEL] in retired else None
    return changed(held, annotations={**annotations, names.TENANTS: book}, deletion_timestamp=gone_at)


def _left(table: Table, column: int) -> list[Any]:
    """What is left of a node, whatever order its devices were written in."""
    devices = [replace(device, reservation=None) for device in table.devices[column]]
    slots = (table.share_nano, table.share_mib, table.slice_nano)
    return [
        dict(zip(table.resources, table.free[:, column].tolist(), strict=True)),
        sorted(devices, key=lambda device: device.group),
        table.extra[:, column].tolist(),
        *(sorted(nano for nano in array[:, column].tolist() if nano >= 0) for array in slots),
    ]


class _Done(NamedTuple):
    """What stands on a statement at one checkpoint."""

    mark: int
    placed: tuple[Placement, ...] = ()
    evicted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()


def _is_a_recount(statement: Statement, objects: list[Any], done: _Done) -> bool:
    made = cluster(*_without(objects, set(done.evicted), set(done.retired)))
    for placement in done.placed:
        made.commits.assume(placement)
    ledger = made.refresh()
    for name, position in statement.position_of.items():
        assert _left(statement.table, position) == _left(ledger.table, ledger.row_of[name])
    return True


_MOVES = st.lists(
    st.tuples(st.sampled_from(["place", "room", "evict", "evict", "back"]), st.integers(0, 1_000)), max_size=14
)


@settings(max_examples=examples(15))
@given(_occupied(), _MOVES)
def test_after_any_placements_and_evictions_each_node_is_what_a_recount_gives(
    objects: list[Any], moves: list[tuple[str, int]]
) -> None:
    made = cluster(*objects)
    placer = Placer(made.snapshot())
    statement, waiting = placer.statement, sorted(made.waiting(), key=lambda record: record.name)
    pods = {obj.metadata.uid: obj for obj in objects if isinstance(obj, Pod)}
    running = [record for record in map(made.pod, pods) if record and record.node and not record.is_reservation]
    kept = [_Done(statement.checkpoint())]
    for move, number in moves:
        done = kept[-1]
        gone, under_way = done.evicted, {placement.pod_uid for placement in done.placed}
        record = waiting[number % len(waiting)]
        victims = [victim for victim in running if victim.uid not in gone]
        match move:
            case "place" if record.uid not in under_way:
                if (placed := placer.place(record)) is not None:
                    done = done._replace(placed=(*done.placed, placed))
            case "room" if record.name in {"whole", "two"} and record.uid not in under_way:
                if (room := placer.wait_for_device(record)) is not None:
                    retired = (pods[retire.reservation_uid].metadata.labels or {} for retire in room[1])
                    groups = {labels[names.GPU_GROUP_LABEL] for labels in retired}
                    at = Placement(pod_uid=record.uid, namespace="ns", name=record.name, rv="", node=room[0])
                    done = done._replace(placed=(*done.placed, at), retired=done.retired | groups)
            case "evict" if victims:
                statement.evict(victims[number % len(victims)])
                done = done._replace(evicted=gone | {victims[number % len(victims)].uid})
            case "back":
                kept = kept[: number % len(kept) + 1]
                statement.rollback(kept[-1].mark)
                done = kept.pop()
            case _:
                continue
        kept.append(done._replace(mark=statement.checkpoint()))
        assert _is_a_recount(statement, objects, kept[-1])

"""A decision on a changed snapshot is that of a cluster that has seen the change; the snapshot stays as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.convert.devices import slice_record
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.decide.changes import (
    AnotherAsk,
    AnotherMinimum,
    AnotherNode,
    AnotherQueue,
    Bound,
    Change,
    Cordoned,
    Drained,
    InQueue,
    LastInTurn,
    NoDoubts,
    OnlyThese,
    UnknownObject,
    WithoutPods,
)
from scheduler.core.decide.decide import Decision, decide, decide_as_if
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot, file_touched
from scheduler.core.model.plan import Nominate, Placement, placements
from scheduler.core.model.settings import Settings
from scheduler.core.scheduling_queue.effects import Effect, Said, ShapeFailed, ShapeHeldBack
from tests.scheduler.core.device_objects import ask
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.nodes.claiming import GPU, chosen, claimed, claiming, offered
from tests.scheduler.core.objects import NANO, bound, cluster, commit, feed, node, pod, pod_group, queue, reservation
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

TENTH = NANO // 10
_ASKS = ({"gpus": 1}, {"gpus": 2}, {"fraction": "0.5"}, {"fraction": "0.3", "devices": 2}, {"mem": 3000}, {"cpu": "9"})


# --- small cases -----------------------------------------------------------------------------------------------------
def _placed(decision: Decision) -> dict[str, str]:
    return {placement.name: placement.node for placement in placements(decision.entries)}


def _decided(made: Cluster, *changes: Change) -> dict[str, str]:
    return _placed(decide_as_if(made.snapshot(), *changes, now_ns=0))


def test_another_node_takes_what_fits_nowhere() -> None:
    made = cluster(node(gpus=1), pod("p", gpus=2))
    assert _decided(made) == {}
    assert _decided(made, AnotherNode(node_record(node("n2", gpus=2)))) == {"p": "n2"}


@pytest.mark.parametrize(
    ("change", "where"), [(Cordoned("n1"), "n2"), (Drained("n1"), "n2"), (WithoutPods(("uid-taker",)), "n1")]
)
def test_nodes_and_pods_that_are_otherwise_move_a_pod(change: Change, where: str) -> None:
    taker = pod("taker", cpu="32", bound_to="n1")
    made = cluster(node("n1", cpu="40"), node("n2", cpu="16"), taker, pod("p", cpu="8"))
    assert _decided(made) == {"p": "n1"}
    large = pod("q", cpu="30")
    if isinstance(change, WithoutPods):
        made.upsert_pod(large)
        assert _decided(made, change)["q"] == where
    else:
        assert _decided(made, change) == {"p": where}


def test_a_share_of_a_pod_that_is_gone_is_free_for_others() -> None:
    made = cluster(node(gpus=1), bound(pod("tenant"), "n1", ("g", 7 * TENTH)), pod("p", fraction="0.5"))
    made.upsert_pod(reservation("g", "n1", book={"uid-tenant": 7 * TENTH}))
    assert _decided(made) == {}
    assert _decided(made, WithoutPods(("uid-tenant",))) == {"p": "n1"}


def test_a_pod_that_is_gone_keeps_none_of_those_off_that_would_not_be_beside_it() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    made = cluster(node(), pod("web", labels={"app": "web"}, bound_to="n1"), pod("p", spec=apart))
    assert _decided(made) == {}
    assert _decided(made, WithoutPods(("uid-web",))) == {"p": "n1"}
    assert _decided(made) == {}


def test_a_higher_limit_of_a_queue_lets_its_pods_start() -> None:
    made = cluster(node(), queue("default-queue", gpu=(0, 1, 1)), pod("p", gpus=2))
    assert _decided(made) == {}
    assert _decided(made, AnotherQueue(queue_record(queue("default-queue", gpu=(0, 1, 2))))) == {"p": "n1"}


def test_a_device_that_was_chosen_for_a_pod_which_runs_is_taken() -> None:
    pods = claimed("c"), claiming("p", "c"), claimed("d"), claiming("q", "d")
    made = cluster(node("n1"), offered("n1"), GPU, *pods)
    decision = decide_as_if(made.snapshot(), OnlyThese(frozenset({"uid-p"})), now_ns=0)
    (placement,) = placements(decision.entries)
    assert placement.claims
    assert _decided(made, OnlyThese(frozenset({"uid-q"}))) == {"q": "n1"}
    assert _decided(made, Bound((placement,), 0)) == {}


def test_a_gang_that_asks_less_or_needs_fewer_starts() -> None:
    members = [pod(f"m{number}", gpus=2, group="gang") for number in range(3)]
    made = cluster(node(gpus=5), pod_group("gang", 3), *members)
    smaller = made.read_pod(pod("other", gpus=1, group="gang")).record
    assert smaller is not None
    assert _decided(made) == {}
    assert _decided(made, AnotherAsk(("uid-m2",), smaller.cls)).keys() == {"m0", "m1", "m2"}
    assert _decided(made, AnotherMinimum("ns", "gang", 2)).keys() == {"m0", "m1"}


def test_a_pod_that_is_last_in_turn_gets_what_others_leave_and_counts_as_before() -> None:
    made = cluster(node(gpus=1), pod("p", gpus=1, priority=200), pod("other", gpus=1))
    assert _decided(made) == {"p": "n1"}
    assert _decided(made, LastInTurn(("uid-p",))) == {"other": "n1"}
    fixed = cluster(node(), queue("default-queue", gpu=(1, 1, -1)), pod("p", gpus=2, priority=200))
    assert _decided(fixed, LastInTurn(("uid-p",))) == _decided(fixed) == {}


def test_a_group_that_is_last_in_turn_comes_after_queues_that_are_above_their_share() -> None:
    teams = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))
    used = bound(pod("used", gpus=2, labels={"kai.scheduler/queue": "b"}), "n1")
    waiting = pod("m", gpus=1, group="g"), pod("other", gpus=1, labels={"kai.scheduler/queue": "b"})
    made = cluster(node(gpus=3), *teams, used, pod_group("g", 1, queue="a"), *waiting)
    assert _decided(made) == {"m": "n1"}
    assert _decided(made, LastInTurn(("uid-m",))) == {"other": "n1"}


def test_pods_count_in_another_queue_alone_and_as_a_group() -> None:
    queues = queue("default-queue", gpu=(0, 1, 0)), queue("team")
    made = cluster(
        node(), *queues, pod("p", gpus=1), pod_group("g", 1, queue="default-queue"), pod("m", gpus=1, group="g")
    )
    assert _decided(made) == {}
    assert _decided(made, InQueue("team", uids=("uid-p",))) == {"p": "n1"}
    assert _decided(made, InQueue("team", pod_group=("ns", "g"))) == {"m": "n1"}


def test_only_the_pods_that_are_named_are_decided_on() -> None:
    made = cluster(node(), pod("a", gpus=1), pod("b", gpus=1))
    assert _decided(made, OnlyThese(frozenset({"uid-b"}))) == {"b": "n1"}


def test_without_doubts_a_pod_goes_back_to_the_node_where_it_failed() -> None:
    made = cluster(node(), pod("p", gpus=1))
    made.commits.failed("uid-p", "n1", "why", now_ns=0)
    assert _decided(made) == {}
    assert _decided(made, NoDoubts()) == {"p": "n1"}


def test_of_two_tenants_one_is_gone_and_the_other_goes_on_paper_so_the_device_is_free() -> None:
    tenants = [bound(pod(name), "n1", ("g", 4 * TENTH)) for name in ("a", "b")]
    made = cluster(node(gpus=1), *tenants)
    made.upsert_pod(reservation("g", "n1", book={"uid-a": 4 * TENTH, "uid-b": 4 * TENTH}))
    other = made.pod("uid-b")
    assert other is not None
    statement = Placer(made.snapshot().with_(WithoutPods(("uid-a",)))).statement
    assert [device.free_nano for device in statement.table.devices[0]] == [6 * TENTH]
    statement.evict(other)
    assert [device.free_nano for device in statement.table.devices[0]] == [NANO]


@pytest.mark.parametrize(("gone", "victim"), [("uid-old", "uid-new"), ("uid-new", "uid-old")])
def test_a_pod_that_is_gone_is_nobodys_victim_and_the_snapshot_still_has_it(gone: str, victim: str) -> None:
    labels = {"kai.scheduler/queue": "team"}
    made = Cluster(Settings())
    feed(made, queue("team", gpu=(0, 1, -1)), node("n1", 2))
    feed(made, *(pod(name, gpus=1, bound_to="n1", labels=labels, priority=10) for name in ("old", "new")))
    feed(made, pod("p", gpus=2, labels=labels, priority=50))
    victims = {"uid-old", "uid-new"}
    assert _victims(decide_as_if(made.snapshot(), now_ns=0, wall_s=1_000)) == victims
    made.decide(0, wall_s=1_000)  # so that its own table is read
    snapshot = made.snapshot()
    changed = snapshot.with_(WithoutPods((gone,)))
    file_touched(changed, 0)
    assert _victims(decide(changed, 0, wall_s=1_000)) == {victim}
    assert changed.residents.row_of.keys() == {victim}
    assert snapshot.residents.row_of.keys() == victims
    assert _victims(decide_as_if(snapshot, now_ns=0, wall_s=1_000)) == victims


@pytest.mark.parametrize(("mem_mib", "nano"), [(8000, NANO // 4), (4000, NANO // 2)])
def test_what_a_victim_gives_back_goes_by_the_cards_that_its_node_would_have(mem_mib: int, nano: int) -> None:
    labels = {"kai.scheduler/queue": "team"}
    made = Cluster(Settings(preemption=True))
    feed(made, queue("team", gpu=(0, 1, -1)), node("n1", 1, mem_mib=8000))
    feed(made, bound(pod("old", mem=2000, labels=labels, priority=10), "n1", ("g", 0), with_grant=False))
    feed(made, pod("p", gpus=1, labels=labels, priority=50))
    made.decide(0, wall_s=1_000)  # so that its own table is read
    changed = made.snapshot().with_(AnotherNode(node_record(node("n1", 1, mem_mib=mem_mib))))
    file_touched(changed, 0)
    assert _victims(decide(changed, 0, wall_s=1_000)) == {"uid-old"}
    assert [unit.amounts.gpu_nano for unit in changed.residents.at(changed.residents.row_of.values())] == [nano]


def _victims(decision: Decision) -> set[str]:
    nominations = [entry.nomination for entry in decision.entries if isinstance(entry, Nominate)]
    return {victim.pod_uid for nomination in nominations for victim in nomination.victims}


def test_a_pod_that_is_named_twice_is_gone_once() -> None:
    made = cluster(node(gpus=1), pod("b", gpus=1, bound_to="n1"), pod("p", gpus=1))
    assert _decided(made, WithoutPods(("uid-b", "uid-b"))) == {"p": "n1"}


def test_changes_add_up_in_their_order() -> None:
    made = cluster(node(gpus=0), pod("p", gpus=2))
    new = AnotherNode(node_record(node("n2", gpus=2)))
    assert _decided(made, new, Cordoned("n2")) == {}
    assert _placed(decide_as_if(made.snapshot().with_(new), now_ns=0)) == {"p": "n2"}


@given(st.integers(0, 2**32))
def test_a_node_brings_what_drivers_publish_for_it(seed: int) -> None:
    rng = random.Random(seed)
    there = [node(name) for name in ("n1", "n2") if rng.random() < 0.7]
    listed = [offered(each.metadata.name, rng.randint(1, 3)) for each in there]
    taken = [claimed(f"t{at}", on=(each.metadata.name, "d0")) for at, each in enumerate(there) if rng.random() < 0.5]
    asked = [claimed(f"c{at}", ask(count=rng.randint(1, 3))) for at in range(4)]
    pods = [claiming(f"p{at}", f"c{at}", group="g" if at < 2 else None) for at in range(4)]
    known: tuple[Any, ...] = (GPU, *there, *listed, *taken, *asked, pod_group("g", 2), *pods)
    new, slices = node("n3"), [offered("n3", rng.randint(1, 3))]
    if rng.random() < 0.5:
        slices.append(offered("s", rng.randint(1, 3), pool="n3-more", nodeName="n3"))
    change = AnotherNode(node_record(new), tuple(map(slice_record, slices)))
    supposed = chosen(decide_as_if(cluster(*known).snapshot(), change, now_ns=0))
    assert supposed == chosen(cluster(*known, new, *slices).decide(0))
    assert not any(at == "n3" for at, _ in chosen(cluster(*known, new).decide(0)).values())


@pytest.mark.parametrize(
    "change",
    [
        AnotherNode(node_record(node("n2"))),
        AnotherNode(node_record(node("n2")), (slice_record(offered("n2")),)),
        AnotherNode(node_record(node("n1", labels={"rack": "other"}))),
    ],
    ids=["without devices", "with devices", "with other labels"],
)
def test_a_node_that_is_supposed_leaves_nothing_of_its_devices_behind(change: AnotherNode) -> None:
    made = cluster(node("n1"), offered("n1"), GPU, claimed("o", on=("n1", "d0")), claimed("c"), claiming("p", "c"))
    made.decide(0)
    inventory = made.claims.inventory
    before = footprint(inventory)
    changed = made.snapshot().with_(change)
    decide_as_if(changed, now_ns=0)
    decide_as_if(changed.with_(Cordoned(change.node.name)), now_ns=0)
    assert footprint(inventory) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Cordoned("missing"), "node: 'missing' is not known"),
        (Drained("missing"), "node: 'missing' is not known"),
        (WithoutPods(("missing",)), "WithoutPods.uids: 'missing' is not known"),
        (LastInTurn(("missing",)), r"LastInTurn.uids: 'missing' is not known"),
        (InQueue("q", uids=("missing",)), r"InQueue.uids: 'missing' is not known"),
        (InQueue("q", pod_group=("ns", "missing")), "InQueue.pod_group: 'ns/missing' is not known"),
        (AnotherMinimum("ns", "missing", 1), "AnotherMinimum.pod_group: 'ns/missing' is not known"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused_with_its_name(change: Change, message: str) -> None:
    with pytest.raises(UnknownObject, match=message):
        cluster(node()).snapshot().with_(change)


def test_a_pod_that_is_bound_asks_nothing_else() -> None:
    made = cluster(node(), pod("b", gpus=1, bound_to="n1"))
    record = made.pod("uid-b")
    assert record is not None
    with pytest.raises(UnknownObject, match=r"AnotherAsk\.uids: 'uid-b'"):
        made.snapshot().with_(AnotherAsk(("uid-b",), record.cls))


# --- against a cluster that has seen the change ----------------------------------------------------------------------
@dataclass
class World:
    """What a cluster has seen, by name."""

    nodes: dict[str, Node] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    asks: dict[str, dict[str, object]] = field(default_factory=dict)
    #: Tenants of reservations, by group: node, and the parts that pods have.
    books: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    preemption: bool = False

    def cluster(self) -> Cluster:
        made = cluster(*self.nodes.values(), settings=Settings(preemption=self.preemption))
        feed(made, queue("default-queue", gpu=(1, 1, 6)), queue("team", gpu=(1, 1, -1)))
        feed(made, *self.groups.values(), *self.pods.values())
        for group, (at, book) in self.books.items():
            feed(made, reservation(group, at, book=book))
        return made


def _world(rng: random.Random) -> World:
    made = World(preemption=rng.random() < 0.3)
    for name in ("n1", "n2", "n3")[: rng.randint(1, 3)]:
        made.nodes[name] = node(name, rng.randint(0, 4), mem_mib=rng.choice([0, 8000]), cpu="32")
    for name in ("ga", "gb"):
        made.groups[name] = pod_group(name, rng.randint(1, 3), queue=rng.choice(["default-queue", "team"]))
    for number in range(rng.randint(1, 9)):
        name, group = f"p{number}", rng.choice(["", "", "ga", "gb"])
        asks = rng.choice(_ASKS)
        labels = {"kai.scheduler/queue": rng.choice(["default-queue", "team"])}
        made.asks[name] = {"group": group, "labels": labels, "priority": rng.choice([0, 0, 50, 100])}
        made.pods[name] = pod(name, **asks, **made.asks[name])  # type: ignore[arg-type] # a table of keywords
    for number, name in enumerate(made.nodes):
        group = f"g{number}"
        if rng.random() < 0.6:
            uids = [f"uid-t{number}-{each}" for each in range(rng.randint(1, 2))]
            made.books[group] = name, dict.fromkeys(uids, 4 * TENTH)
            for uid in uids:
                tenant = uid.removeprefix("uid-")
                made.pods[tenant] = bound(pod(tenant), name, (group, 4 * TENTH))
        if rng.random() < 0.3:
            made.pods[f"m{number}"] = bound(pod(f"m{number}", mem=2000), name, (f"k{number}", 0), with_grant=False)
        if rng.random() < 0.6:
            uses = {"example.com/nic": "1"} if rng.random() < 0.3 else {}
            made.pods[f"w{number}"] = pod(f"w{number}", gpus=1, bound_to=name, extended=uses)
    return made


Applied = Callable[[Cluster], None]


def _another_node(world: World, rng: random.Random) -> tuple[Change, Applied]:
    extended = {"example.com/nic": 2} if rng.random() < 0.2 else {}
    name = rng.choice(["a-new", "z-new", *world.nodes])
    new = node(name, 3, mem_mib=rng.choice([0, 4000]), extended=extended)
    return AnotherNode(node_record(new)), lambda made: feed(made, new)


def _cordoned(world: World, name: str) -> Applied:
    known = world.nodes[name]
    cordoned = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, unschedulable=True))
    return lambda made: feed(made, cordoned)


def _cordon(world: World, rng: random.Random) -> tuple[Change, Applied]:
    name = rng.choice([*world.nodes])
    return Cordoned(name), _cordoned(world, name)


def _gone(world: World, made: Cluster, uids: Iterable[str]) -> None:
    gone = set(uids)
    for uid in gone:
        made.remove_pod(uid, has_ended=True)
        made.commits.forget_departed(uid)
    for group, (at, book) in world.books.items():
        if gone & book.keys():
            feed(made, reservation(group, at, book={uid: nano for uid, nano in book.items() if uid not in gone}))


def _drain(world: World, rng: random.Random) -> tuple[Change, Applied]:
    name = rng.choice([*world.nodes])
    uids = [each.metadata.uid for each in world.pods.values() if each.spec.node_name == name]

    def effect(made: Cluster) -> None:
        _cordoned(world, name)(made)
        _gone(world, made, uids)

    return Drained(name), effect


def _without(world: World, rng: random.Random) -> tuple[Change, Applied]:
    whole = [each for each in world.pods.values() if each.spec.node_name or "gpus" in str(world.asks)]
    uids = tuple(sorted(each.metadata.uid for each in rng.sample(whole, min(len(whole), rng.randint(1, 3)))))
    return WithoutPods(uids), lambda made: _gone(world, made, uids)


def _another_queue(world: World, rng: random.Random) -> tuple[Change, Applied]:
    new = queue(rng.choice(["default-queue", "team"]), gpu=(rng.randint(0, 4), rng.randint(1, 3), rng.randint(0, 9)))
    return AnotherQueue(queue_record(new)), lambda made: feed(made, new)


def _another_ask(world: World, rng: random.Random) -> tuple[Change, Applied]:
    names = [name for name in world.asks if rng.random() < 0.5]
    asks = rng.choice(_ASKS)
    others = [pod(name, **asks, **world.asks[name]) for name in names]  # type: ignore[arg-type] # as above
    record = cluster().read_pod(pod("any", **asks)).record
    assert record is not None

    def effect(made: Cluster) -> None:
        feed(made, *others)

    return AnotherAsk(tuple(f"uid-{name}" for name in names), record.cls), effect


def _another_minimum(world: World, rng: random.Random) -> tuple[Change, Applied]:
    name, minimum = rng.choice([*world.groups]), rng.randint(1, 4)
    known = world.groups[name]
    other = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, min_member=minimum))
    return AnotherMinimum("ns", name, minimum), lambda made: feed(made, other)


_CHANGES = (_another_node, _cordon, _drain, _without, _another_queue, _another_ask, _another_minimum)


def _verdicts(effects: Iterable[Effect]) -> list[str]:
    """What pods are told, whatever else is learned."""
    found = []
    for note in effects:
        match note:
            case Said() | ShapeFailed():
                found.append(repr(note))
            case ShapeHeldBack(key=key, held=held):
                found.append(repr((key, held.verdict)))
            case _:
                pass
    return sorted(found)


def _shown(decision: Decision) -> list[object]:
    """Entries without the versions of objects."""
    return [
        (type(entry).__name__, [_place(each) for each in placements([entry])] or repr(entry))
        for entry in decision.entries
    ]


def _place(placement: Placement) -> object:
    return placement.pod_uid, placement.node, placement.devices, placement.number, placement.alternative


def _counted(snapshot: Snapshot) -> object:
    """What nodes have left, and what queues have, as far as anybody looks at it."""
    ledger = snapshot.ledger
    table = ledger.table.taken(np.array([ledger.row_of[name] for name in sorted(ledger.row_of)]))
    free = {name: table.free[number].tolist() for number, name in enumerate(table.resources)}
    devices = [[msgspec.structs.replace(each, reservation=None) for each in here] for here in table.devices]
    return free, devices, table.extra.tolist(), snapshot.queues.sums.sums, snapshot.queues.accounts().of


def _begun(world: World, seed: int) -> Cluster:
    """A cluster that has decided, and carries some of that out."""
    made = world.cluster()
    plan = made.decide(0, wall_s=1_000)
    rng = random.Random(seed)
    part = tuple(entry for entry in plan.entries if rng.random() < 0.4)
    in_flight = {each.pod_uid for each in placements(part) if not each.devices}
    commit(made, msgspec.structs.replace(plan, entries=tuple(e for e in part if _is_of(e, in_flight))))
    return made


def _is_of(entry: object, uids: set[str]) -> bool:
    return all(each.pod_uid in uids for each in placements([entry]))  # type: ignore[list-item] # any entry


@given(st.integers(0, 2**32), st.integers(0, len(_CHANGES) - 1))
@example(532889, 0).via("smaller cards: a pod that may be evicted counts for more")
def test_a_changed_snapshot_decides_as_a_cluster_that_has_seen_the_change(seed: int, kind: int) -> None:
    rng = random.Random(seed)
    world = _world(rng)
    change, effect = _CHANGES[kind](world, rng)
    made, other = _begun(world, seed), _begun(world, seed)
    snapshot = made.snapshot()
    before = footprint(made)
    changed = snapshot.with_(change)
    supposed = decide_as_if(changed, now_ns=5, wall_s=1_000)
    assert _shown(decide_as_if(changed, now_ns=5, wall_s=1_000)) == _shown(supposed)
    assert footprint(made) == before
    effect(other)
    other.forget_verdicts()
    seen = decide(other.prepared(5), 5, wall_s=1_000)
    assert _shown(supposed) == _shown(seen)
    assert _counted(changed) == _counted(other.snapshot())
    assert _verdicts(supposed.effects) == _verdicts(seen.effects)
    assert made.validate() == []

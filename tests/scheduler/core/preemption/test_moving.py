"""Who is moved: groups by node, whether other nodes hold them, and which nodes are worth emptying."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import identity
from scheduler.core.model.preemption import Budget, Evicted, Moves, NoMoves, PreemptionSettings
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.capacity import KeptSlots
from scheduler.core.preemption.consolidation import Elsewhere, Movers, Vacating, find_moves
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Resident
from tests.quick import few
from tests.scheduler.core.objects import NANO, feed, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, device, need_of, running, sharing, trial_of, waiting
from wire import names
from wire.core import OwnerReference, Pod

# Who is moved: against every set of groups of small clusters, and one story each.

_JOB = ("batch/v1", "Job")
_OWNER_ID = identity("ns", OwnerReference("apps/v1", "ReplicaSet", "o", "o"))
_ANNOTATED = {names.DO_NOT_DISRUPT: "true"}


def preempting_cluster(*objects: Any) -> Cluster:
    """A cluster where pods are evicted for others, that has seen these."""
    made = Cluster(Settings())
    feed(made, *objects)
    return made


def movable(name: str, on: str, gpus: int = 1, **more: Any) -> Pod:
    """A pod that runs, and that its ReplicaSet would make again."""
    owner = more.pop("owner", ("apps/v1", "ReplicaSet"))
    return running(name, more.pop("team", "a"), on, gpus=gpus, owner=owner, **more)


def answer(*objects: Any, of: str = "mine", **given: Any) -> Moves | None:
    """Who is moved."""
    trial = trial_of(preempting_cluster(*objects), **given)
    before = image(trial)
    found = find_moves(need_of(trial, of), trial)
    assert image(trial) == before
    return found if isinstance(found, Moves) else None


def image(trial: Trial) -> Any:
    accounts = [(of.held, of.kept, of.fixed) for of in trial.accounts.of]
    return trial.statement.table.free.tolist(), trial.statement.table.devices[:], accounts


def moved(found: Moves | None) -> dict[str, str] | None:
    """Where each mover is to be, by name; None: nobody is moved."""
    return None if found is None else {place.pod_uid.removeprefix("uid-"): place.node for place in found.moved}


# --- all sets ------------------------------------------------------------------------------------------------------
class World:
    """A few nodes of four GPUs, some in use, by seed; ``mine`` waits and fits nowhere, but for what is free in all."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.free = {f"n{number}": 4 for number in range(rng.choice([2, 3, 4]))}
        #: Groups: the pods of each, as node and GPUs.
        self.groups: dict[str, list[tuple[str, int]]] = {}
        self.objects: list[Any] = [queue("a", gpu=(0, 1, -1)), *(node(name, 4) for name in self.free)]
        for number in range(rng.choice([2, 4, 6])):
            self._group(rng, f"g{number}")
        for name in list(self.free):
            if self.free[name] and rng.random() < 0.3:
                self.free[name] -= 1
                self.objects.append(running(f"fixed-{name}", "a", name, gpus=1))
        self.asked = [rng.choice([2, 3, 4])] * rng.choice([1, 1, 2])
        self._mine()

    def _group(self, rng: random.Random, name: str) -> None:
        gpus, members = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
        places = list[tuple[str, int]]()
        free = dict(self.free)
        for _ in range(members):
            there = [each for each, left in free.items() if left >= gpus]
            if not there:
                return
            where = rng.choice(there)
            free[where] -= gpus
            places.append((where, gpus))
        self.free, self.groups[name] = free, places
        if members > 1:
            self.objects.append(pod_group(name, members, queue="a"))
        for at, (where, each) in enumerate(places):
            group = name if members > 1 else ""
            self.objects.append(movable(f"{name}-{at}", where, each, group=group))

    def _mine(self) -> None:
        if len(self.asked) > 1:
            self.objects.append(pod_group("mine", len(self.asked), queue="a"))
            self.objects += [waiting(f"m{at}", "a", gpus=gpus, group="mine") for at, gpus in enumerate(self.asked)]
        else:
            self.objects.append(waiting("mine", "a", gpus=self.asked[0]))

    def without(self, groups: Iterable[str]) -> dict[str, int]:
        """What is free once these groups are off."""
        free = dict(self.free)
        for name in groups:
            for where, gpus in self.groups[name]:
                free[where] += gpus
        return free

    def is_enough(self, groups: Sequence[str]) -> bool:
        """Whether the need fits beside all movers, none of which comes where one has left: every way is tried."""
        movers = [each for name in groups for each in self.groups[name]]
        left = frozenset(where for where, _ in movers)
        asked = [(gpus, frozenset[str]()) for gpus in self.asked]
        return _packs(self.without(groups), [*((gpus, left) for _, gpus in movers), *asked])

    def fits_as_it_is(self) -> bool:
        return self.is_enough([])

    def solutions(self) -> list[tuple[str, ...]]:
        names = list(self.groups)
        sets = (each for size in range(1, len(names) + 1) for each in itertools.combinations(names, size))
        return [each for each in sets if self.is_enough(each)]


def _packs(free: dict[str, int], pods: Sequence[tuple[int, frozenset[str]]]) -> bool:
    """Whether all fit; each has its GPUs, and nodes that are out for it."""
    if not pods:
        return True
    gpus, out = pods[0]
    for name, left in free.items():
        if name not in out and left >= gpus:
            free[name] -= gpus
            done = _packs(free, pods[1:])
            free[name] += gpus
            if done:
                return True
    return False


def _judged(seed: int) -> tuple[World, Moves | None]:
    world = World(seed)
    trial = trial_of(preempting_cluster(*world.objects))
    before = image(trial)
    found = find_moves(need_of(trial, "mine"), trial)
    assert image(trial) == before
    return world, found if isinstance(found, Moves) else None


@given(st.integers(0, 1 << 32))
def test_all_that_are_moved_have_places_beside_the_need_and_nobody_is_moved_for_nothing(seed: int) -> None:
    world, found = _judged(seed)
    if world.fits_as_it_is() or found is None:
        return
    groups = {place.pod_uid.removeprefix("uid-").split("-")[0] for place in found.moved}
    free = world.without(groups)
    asked = {f"uid-{name}-{at}": each for name in groups for at, each in enumerate(world.groups[name])}
    assert {place.pod_uid for place in found.moved} == asked.keys()
    for place in found.moved:
        was_on, gpus = asked[place.pod_uid]
        assert place.node != was_on
        free[place.node] -= gpus
    for place, gpus in zip(found.places, world.asked, strict=True):
        free[place.node] -= gpus
    assert min(free.values()) >= 0


@pytest.mark.parametrize("most_placed", few([0, 4, 16], 3))
def test_a_search_places_so_many_pods_at_most_and_what_it_finds_by_then_holds(most_placed: int) -> None:
    found_some = 0
    for seed in range(150):
        world = World(seed)
        trial = trial_of(preempting_cluster(*world.objects))
        before = image(trial)
        found = find_moves(need_of(trial, "mine"), trial, most_placed=most_placed)
        assert image(trial) == before
        assert found.placed <= most_placed + max(len(world.asked), *map(len, world.groups.values()))
        if isinstance(found, Moves):
            found_some += 1
            assert world.is_enough([*{place.pod_uid.removeprefix("uid-").split("-")[0] for place in found.moved}])
    assert bool(found_some) == (most_placed > 0)


def test_where_one_group_is_enough_it_is_the_one_with_which_least_is_lost() -> None:
    one_is_enough = 0
    for seed in range(300):
        world, found = _judged(seed)
        alone = [] if world.fits_as_it_is() else [each[0] for each in world.solutions() if len(each) == 1]
        if not alone:
            continue
        one_is_enough += 1
        lost = {name: sum(gpus for _, gpus in world.groups[name]) for name in alone}
        assert found is not None
        (name,) = {place.pod_uid.removeprefix("uid-").split("-")[0] for place in found.moved}
        assert lost[name] == min(lost.values())
    assert one_is_enough > 15


def test_trying_groups_alone_leaves_half_of_the_search_to_several() -> None:
    """Any two groups make room for both members; one alone does not."""
    pods = [movable(f"r{at}", f"n{at}", 1) for at in range(30)]
    gang = [pod_group("mine", 2, queue="a"), *(waiting(f"m{at}", "a", gpus=2, group="mine") for at in range(2))]
    made = preempting_cluster(queue("a", gpu=(0, 1, -1)), *(node(f"n{at}", 2) for at in range(30)), *pods, *gang)
    found = find_moves(need_of(trial := trial_of(made), "mine"), trial, most_placed=24)
    assert isinstance(found, Moves)
    assert len(found.moved) == 2


def test_of_equal_groups_the_youngest_is_moved() -> None:
    ages = {"old": 900, "young": 60, "middle": 500}
    pods = [movable(name, f"n{at}", 1, age_s=age) for at, (name, age) in enumerate(ages.items())]
    nodes = [node(f"n{at}", 2) for at in range(3)]
    assert moved(answer(queue("a", gpu=(0, 1, -1)), *nodes, *pods, waiting("mine", "a", gpus=2))) in (
        {"young": "n0"},
        {"young": "n2"},
    )


@pytest.mark.thorough
def test_what_can_be_found_is_found_and_hardly_anybody_is_moved_in_vain() -> None:
    """Beside every set that would do: how often none is found, and how often one group less would do."""
    there, missed, spare = 0, 0, 0
    for seed in range(800):
        world, found = _judged(seed)
        if world.fits_as_it_is():
            continue
        solutions = set(world.solutions())
        there += bool(solutions)
        missed += bool(solutions) and found is None
        assert found is None or solutions
        if found is not None:
            groups = {place.pod_uid.removeprefix("uid-").split("-")[0] for place in found.moved}
            one_less = (tuple(sorted(groups - {each})) for each in groups)
            spare += any(each in solutions for each in one_less)
    assert there > 60
    assert missed * 20 <= there
    assert spare == 0


# --- stories ---------------------------------------------------------------------------------------------------------
_FRAGMENTED = (queue("a", gpu=(0, 1, -1)), node("n1", 4), node("n2", 4))


def test_two_gpus_here_and_two_there_become_four() -> None:
    found = answer(*_FRAGMENTED, movable("x", "n1", 2), movable("y", "n2", 2), waiting("mine", "a", gpus=4))
    assert found is not None
    assert moved(found) in ({"x": "n2"}, {"y": "n1"})
    assert [place.node for place in found.places] == [{"x": "n1", "y": "n2"}[next(iter(moved(found) or {}))]]


def test_nothing_is_tried_for_groups_that_fit_on_no_other_node() -> None:
    nodes = [node(name, gpus=4) for name in ("a", "b", "c")]
    pods = [movable(f"on-{each.metadata.name}", each.metadata.name, gpus=3) for each in nodes]
    trial = trial_of(preempting_cluster(*nodes, *pods, queue("a"), waiting("mine", "a", gpus=2)))
    found = find_moves(need_of(trial, "mine"), trial)
    assert isinstance(found, NoMoves)
    assert found.placed == 0


def test_the_node_with_the_least_to_move_is_emptied() -> None:
    found = answer(
        *_FRAGMENTED, node("n3", 4), movable("x", "n1", 1), movable("y", "n2", 2), movable("z", "n3", 3),
        waiting("mine", "a", gpus=4),
    )  # fmt: skip
    assert moved(found) == {"x": "n3"}


def test_a_gang_is_moved_whole_and_starts_where_several_nodes_came_free() -> None:
    found = answer(
        *_FRAGMENTED, node("n3", 4), pod_group("g", 2, queue="a"),
        movable("g0", "n1", 1, group="g"), movable("g1", "n2", 1, group="g"), movable("z", "n3", 1),
        pod_group("mine", 2, queue="a"), *(waiting(f"m{at}", "a", gpus=4, group="mine") for at in range(2)),
    )  # fmt: skip
    assert moved(found) == {"g0": "n3", "g1": "n3"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"owner": None}, id="nobody would make it again"),
        pytest.param({"annotations": _ANNOTATED}, id="asks not to be disrupted"),
        pytest.param({"labels": {names.PREEMPTIBILITY_LABEL: "non-preemptible"}}, id="can't be preempted"),
        pytest.param({"priority": 100}, id="can't be preempted by its priority"),
        pytest.param({"deleting": True}, id="goes anyway"),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}, id="mounts a volume"
        ),
        pytest.param({"spec": {"nodeSelector": {names.HOSTNAME_LABEL: "n1"}}}, id="may be nowhere else"),
    ],
)
def test_some_are_never_moved(other: dict[str, Any]) -> None:
    labels = {names.QUEUE_LABEL: "a", **other.pop("labels", {})}
    x = movable("x", "n1", 1, **other)
    x = _labelled(x, labels)
    fixed = running("fixed", "a", "n2", gpus=2)
    assert answer(*_FRAGMENTED, x, fixed, waiting("mine", "a", gpus=4)) is None
    assert answer(*_FRAGMENTED, movable("x", "n1", 1), fixed, waiting("mine", "a", gpus=4)) is not None


def _labelled(made: Pod, labels: dict[str, str]) -> Pod:
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


_BUDGET = Budget(namespace="ns", name="b", selector=(), allowed=0)


@pytest.mark.parametrize(
    ("given", "is_moved"),
    [
        ({"evicted": {_OWNER_ID: Evicted(1, NOON_S - 600)}}, True),
        ({"evicted": {_OWNER_ID: Evicted(2, NOON_S - 1_800)}}, False),
        ({"evicted": {_OWNER_ID: Evicted(1, NOON_S - 10)}}, False),
        ({"taken": {"uid-x"}}, False),
        ({"refused": {"uid-x"}}, False),
        ({"budgets": (_BUDGET,), "labels": {"uid-x": {}}}, False),
        ({"settings": PreemptionSettings(most_moved_groups=0)}, False),
        ({"settings": PreemptionSettings(preempt_min_runtime_ns=3_600 * 10**9)}, True),
        ({"settings": PreemptionSettings(preempt_min_runtime_ns=3_601 * 10**9)}, False),
        ({"settings": PreemptionSettings(reclaim_min_runtime_ns=3_601 * 10**9)}, False),
    ],
    ids=[
        *("once within the hour", "twice within the hour", "a moment ago", "goes for another", "refused"),
        *("budget", "off", "has run long enough", "minimum runtime", "minimum runtime of reclaim"),
    ],
)
def test_a_group_is_left_where_it_is_for_a_while(given: dict[str, Any], is_moved: bool) -> None:
    objects = (*_FRAGMENTED, movable("x", "n1", 1), running("fixed", "a", "n2", gpus=2), waiting("mine", "a", gpus=4))
    assert (answer(*objects, **given) is not None) is is_moved


def test_only_groups_that_can_be_preempted_have_others_moved() -> None:
    objects = (*_FRAGMENTED, movable("x", "n1", 1), running("fixed", "a", "n2", gpus=2))
    assert answer(*objects, waiting("mine", "a", gpus=4, priority=99)) is not None
    assert answer(*objects, waiting("mine", "a", gpus=4, priority=100)) is None


def test_nobody_is_moved_where_not_enough_is_free_in_all() -> None:
    objects = (*_FRAGMENTED, movable("x", "n1", 3), movable("y", "n2", 2))
    assert answer(*objects, waiting("mine", "a", gpus=4)) is None


def test_no_more_groups_are_moved_than_may_be() -> None:
    objects = (*_FRAGMENTED, *(movable(f"x{at}", "n1") for at in range(2)), movable("fixed", "n2", 1, owner=None))
    need = waiting("mine", "a", gpus=4)
    assert answer(*objects, need, settings=PreemptionSettings(most_moved_groups=1)) is None
    assert moved(answer(*objects, need)) == {"x0": "n2", "x1": "n2"}


#: More nodes than have a try as the first one.
_MANY = range(9)


def test_no_group_is_moved_off_a_node_that_can_not_take_the_need() -> None:
    useless = [
        (node(f"a{at}", 4), running(f"stays{at}", "a", f"a{at}", gpus=1), movable(f"useless{at}", f"a{at}", 1))
        for at in _MANY
    ]
    objects = (*itertools.chain(*useless), *_FRAGMENTED[:2], movable("x", "n1", 2), waiting("mine", "a", gpus=4))
    assert set(moved(answer(*objects, settings=PreemptionSettings(most_moved_groups=1))) or {}) == {"x"}


def test_what_is_moved_off_a_node_in_vain_goes_back_and_leaves_its_place_to_others() -> None:
    def only(name: str) -> dict[str, Any]:
        return {"spec": {"nodeSelector": {"only": name}}}

    vain = [
        (node(f"a{at}", 4), movable(f"small{at}", f"a{at}", 1, **only("n3")), movable(f"big{at}", f"a{at}", 3))
        for at in _MANY
    ]
    objects = (
        *itertools.chain(*vain), queue("a", gpu=(0, 1, -1)), node("z", 4),
        node("n1", 1, labels={"only": "n1"}), node("n3", 3, labels={"only": "n3"}),
        movable("x", "z", 1, **only("n1")), movable("y", "z", 3), waiting("mine", "a", gpus=4),
    )  # fmt: skip
    assert moved(answer(*objects)) == {"x": "n1", "y": "n3"}


def test_a_share_moves_to_another_device_so_that_a_whole_gpu_comes_free() -> None:
    found = answer(
        queue("a", gpu=(0, 1, -1)), node("n1", 1), node("n2", 1),
        device("g1", "n1", x=NANO // 2), sharing("x", "a", "n1", "g1", NANO // 2, owner=("apps/v1", "ReplicaSet")),
        device("g2", "n2", y=NANO // 2), sharing("y", "a", "n2", "g2", NANO // 2),
        waiting("mine", "a", gpus=1),
    )  # fmt: skip
    assert moved(found) == {"x": "n2"}


def test_surplus_moves_without_its_gang_and_a_gang_with_surplus_stays() -> None:
    gang = (pod_group("g", 1, queue="a"), *(movable(f"g{at}", "n1", 1, group="g") for at in range(2)))
    fixed = running("fixed", "a", "n2", gpus=2)
    assert moved(answer(*_FRAGMENTED, *gang, fixed, waiting("mine", "a", gpus=3))) == {"g1": "n2"}
    assert answer(*_FRAGMENTED, *gang, fixed, waiting("mine", "a", gpus=4)) is None


# Groups that may be moved, by node.

_OWNED: dict[str, Any] = {"owner": ("apps/v1", "ReplicaSet")}


def _movers(*objects: Any, **given: Any) -> Movers:
    trial = trial_of(preempting_cluster(queue("a"), *objects), **given)
    trial.residents.refresh(trial)
    return Movers(trial)


def test_nodes_with_the_least_to_move_come_first_and_the_smallest_groups_of_each() -> None:
    movers = _movers(
        *(node(name, 4) for name in ("n1", "n2", "n3")),
        *(running(f"x{gpus}", "a", "n1", gpus=gpus, **_OWNED) for gpus in (2, 1)),
        running("y", "a", "n2", gpus=2, **_OWNED),
        running("stays", "a", "n3", gpus=1),
    )
    found = [(name, [unit.pods[0].name for unit in units]) for name, units in movers.by_node()]
    assert found == [("n2", ["y"]), ("n1", ["x1", "x2"])]
    only = np.array([name == "n1" for name in movers.trial.statement.position_of])
    assert [name for name, _ in movers.by_node(only)] == ["n1"]


def test_a_group_that_has_not_run_for_its_minimum_is_none() -> None:
    objects = (node("n1", 2), running("x", "a", "n1", gpus=1, age_s=60, **_OWNED))
    assert _movers(*objects).by_node()
    assert not _movers(*objects, settings=PreemptionSettings(preempt_min_runtime_ns=61 * 1_000_000_000)).by_node()


def test_a_node_has_at_most_what_is_free_and_what_may_be_moved_off_it() -> None:
    movers = _movers(
        node("n1", 8), node("n2", 4), pod_group("g", 2, queue="a"),
        running("g0", "a", "n1", gpus=3, group="g", **_OWNED), running("g1", "a", "n2", gpus=1, group="g", **_OWNED),
        running("stays", "a", "n1", gpus=2),
        device("d", "n2", s=NANO // 4, t=NANO // 4), sharing("s", "a", "n2", "d", NANO // 4, **_OWNED),
        sharing("t", "a", "n2", "d", NANO // 4),
    )  # fmt: skip
    assert movers.most_nano.tolist() == [6 * NANO, 3 * NANO + NANO * 3 // 4]
    assert movers.free_nano == 5 * NANO + NANO // 2


def test_free_gpus_of_one_node_do_not_make_up_for_what_another_one_lacks() -> None:
    """On n2 more runs than it has, as after a node has lost a GPU; n3 is full."""
    crowd = [running(f"x{number}", "a", "n2", gpus=1) for number in range(3)]
    movers = _movers(node("n1", 4), node("n2", 2), node("n3", 1), *crowd, running("y", "a", "n3", gpus=1))
    assert movers.free_nano == 4 * NANO
    assert movers.most_nano.tolist() == [4 * NANO, 0, 0]


# Whether other nodes hold a group, as far as counting tells.


def _units(*objects: Any) -> tuple[Trial, dict[str, Resident]]:
    trial = trial_of(preempting_cluster(queue("a"), *objects))
    trial.residents.refresh(trial)
    return trial, {unit.pods[0].name: unit for unit in trial.residents.movable.values()}


def test_a_group_fits_elsewhere_if_nodes_besides_its_own_and_the_chosen_ones_hold_it() -> None:
    nodes = [node("n1", 4), node("n2", 2), node("n3", 1)]
    trial, units = _units(*nodes, running("x", "a", "n1", gpus=2, **_OWNED), running("y", "a", "n3", gpus=1, **_OWNED))
    elsewhere = Elsewhere(trial.statement, KeptSlots(trial.statement))
    assert elsewhere.may_hold(units["x"])
    elsewhere.choose("n2")
    assert not elsewhere.may_hold(units["x"])
    assert elsewhere.may_hold(units["y"])
    elsewhere.choose("n1")
    assert not elsewhere.may_hold(units["y"])
    elsewhere.leave("n2")
    assert elsewhere.may_hold(units["x"])
    elsewhere.choose_none()
    assert elsewhere.may_hold(units["y"])


def test_all_pods_of_a_gang_count() -> None:
    gang = [running(f"g{at}", "a", "n1", gpus=1, group="g", **_OWNED) for at in range(2)]
    trial, units = _units(node("n1", 4), node("n2", 1), pod_group("g", 2, queue="a"), *gang)
    assert not Elsewhere(trial.statement, KeptSlots(trial.statement)).may_hold(units["g0"])


def test_it_counts_again_what_the_statement_has_changed() -> None:
    trial, units = _units(
        node("n1", 2), node("n2", 1), running("x", "a", "n1", gpus=1, **_OWNED), running("y", "a", "n2", gpus=1)
    )
    elsewhere = Elsewhere(trial.statement, KeptSlots(trial.statement))
    assert not elsewhere.may_hold(units["x"])
    trial.statement.evict(trial.pods.records["uid-y"])
    assert elsewhere.may_hold(units["x"])


# Which nodes are worth emptying.

_NODES = (
    *(node(name, 4) for name in ("n1", "n2", "n3")),
    running("x1", "a", "n1", gpus=1, **_OWNED), running("stays", "a", "n1", gpus=1),
    running("x2", "a", "n2", gpus=2, **_OWNED),
    running("x3", "a", "n3", gpus=1, **_OWNED), running("y3", "a", "n3", gpus=2, **_OWNED),
)  # fmt: skip


def _vacating(*objects: Any) -> Vacating:
    trial = trial_of(preempting_cluster(queue("a"), *_NODES, *objects))
    trial.residents.refresh(trial)
    return Vacating(need_of(trial, "mine"), trial, Movers(trial))


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        pytest.param(4, ["n2", "n3"], id="a pod stays on n1"),
        pytest.param(3, ["n1", "n2", "n3"], id="all may gain a place"),
        pytest.param(5, [], id="no node has so many"),
    ],
)
def test_a_node_is_worth_emptying_where_a_place_may_be_gained(gpus: int, nodes: list[str]) -> None:
    vacating = _vacating(waiting("mine", "a", gpus=gpus))
    assert sorted(name for name, _ in vacating.worth()) == nodes


def test_none_is_where_all_of_them_are_not_enough() -> None:
    gang = [waiting(f"m{at}", "a", gpus=4, group="mine") for at in range(3)]
    assert not _vacating(pod_group("mine", 3, queue="a"), *gang).worth()


def test_a_node_gains_nothing_once_too_much_stays() -> None:
    vacating = _vacating(waiting("mine", "a", gpus=4))
    units = {unit.pods[0].name: unit for unit in vacating.trial.residents.movable.values()}
    assert vacating.may_gain("n3", [])
    assert not vacating.may_gain("n3", [units["x3"]])


def test_counting_does_not_tell_what_helps_where_enough_places_are_counted() -> None:
    vacating = _vacating(waiting("mine", "a", gpus=1))
    assert not vacating.says_all
    assert [name for name, _ in vacating.worth()] == ["n1", "n2", "n3"]
    assert vacating.may_gain("n1", [])


def test_places_of_a_node_are_counted_up_to_what_is_asked() -> None:
    assert _vacating(waiting("mine", "a", gpus=1)).places() == 3
    assert _vacating(waiting("mine", "a", gpus=2)).places() == 2
    assert _vacating(waiting("mine", "a", gpus=4)).places() == 0


# --- whose groups --------------------------------------------------------------------------------------------------
#: Two queues; ``mid`` asks for more than its pods use, so that its fair share is 5 GPUs, and that of ``pre`` is 3.
_SHARED = (
    queue("pre", gpu=(1, 1, -1)),
    queue("mid", gpu=(5, 0, -1)),
    *(node(name, 2) for name in ("n0", "n1", "n2", "n3")),
    movable("mid-2", "n2", team="mid"),
    movable("mid-3", "n3", team="mid"),
)
_MID_WAITS = tuple(waiting(f"mid-w{at}", "mid", gpus=1, spec={"nodeSelector": {"hall": "two"}}) for at in range(4))


@pytest.mark.parametrize(
    ("others", "is_moved"),
    [
        # ``pre`` would have 6 GPUs, and is due 2: no pod of ``mid``, which has less than it is due, makes room for it.
        ((running("a", "pre", "n0", gpus=2), running("b", "pre", "n1", gpus=2), *_MID_WAITS), False),
        # It would have 4, with 2 before: it would come above its share.
        ((running("a", "pre", "n0", gpus=2), running("b", "mid", "n1", gpus=2), *_MID_WAITS), False),
        # Nobody asks for what it has above its quota: its fair share is all of it.
        ((running("a", "pre", "n0", gpus=2), running("b", "pre", "n1", gpus=2)), True),
        # It stays within its share.
        ((running("a", "mid", "n0", gpus=2), running("b", "mid", "n1", gpus=1), *_MID_WAITS[:1]), True),
    ],
)
def test_for_a_queue_above_its_share_none_is_moved_of_a_queue_that_is_not(others: Any, is_moved: bool) -> None:
    assert (answer(*_SHARED, *others, waiting("mine", "pre", gpus=2)) is not None) is is_moved


def test_for_a_queue_above_its_share_its_own_groups_are_moved_and_those_of_others_above_theirs() -> None:
    queues = (queue("pre", gpu=(1, 0, -1)), queue("high", gpu=(1, 0, -1)), queue("low", gpu=(4, 0, -1)))
    waits = (waiting("w", "low", gpus=4, spec={"nodeSelector": {"hall": "two"}}),)
    for owner, is_moved in (("pre", True), ("high", True), ("low", False)):
        pods = (movable("x", "n1", 2, team=owner), running("y", owner, "n2", gpus=2))
        found = answer(node("n1", 4), node("n2", 4), *queues, *waits, *pods, waiting("mine", "pre", gpus=4))
        assert (moved(found) is not None) is is_moved, owner

"""Who is moved: against every set of groups of small clusters, and one story each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import identity
from scheduler.core.model.preemption import Budget, Evicted, Moves, NoMoves, RoomSettings
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.consolidation import find_moves
from scheduler.core.preemption.trial import Trial
from tests.scheduler.core.objects import NANO, feed, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, device, need_of, running, sharing, trial_of, waiting
from wire import names
from wire.core import OwnerReference, Pod

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


@pytest.mark.parametrize("most_placed", [0, 4, 16])
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
        ({"settings": RoomSettings(most_moved_groups=0)}, False),
        ({"settings": RoomSettings(preempt_min_ns=3_600 * 10**9)}, True),
        ({"settings": RoomSettings(preempt_min_ns=3_601 * 10**9)}, False),
        ({"settings": RoomSettings(reclaim_min_ns=3_601 * 10**9)}, False),
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
    assert answer(*objects, need, settings=RoomSettings(most_moved_groups=1)) is None
    assert moved(answer(*objects, need)) == {"x0": "n2", "x1": "n2"}


#: More nodes than have a try as the first one.
_MANY = range(9)


def test_no_group_is_moved_off_a_node_that_can_not_take_the_need() -> None:
    useless = [
        (node(f"a{at}", 4), running(f"stays{at}", "a", f"a{at}", gpus=1), movable(f"useless{at}", f"a{at}", 1))
        for at in _MANY
    ]
    objects = (*itertools.chain(*useless), *_FRAGMENTED[:2], movable("x", "n1", 2), waiting("mine", "a", gpus=4))
    assert set(moved(answer(*objects, settings=RoomSettings(most_moved_groups=1))) or {}) == {"x"}


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

"""A cluster on records: decisions that are carried out at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Evict, Plan, Retire
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.preemption import Action, Budget, Evicted, Nomination, Place, PreemptionFacts, Victim
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from simulator.offline.books import Books
from simulator.offline.shell import LONGEST_S, Evictions, Rest, Shell, settle
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.nodes.mounting import mounting
from tests.scheduler.core.objects import (
    bind_request,
    bound,
    claim,
    cluster,
    ended,
    free_gpus,
    free_volume,
    next_rv,
    node,
    pod,
    pod_group,
    reservation,
    storage_class,
)
from tests.simulator.offline.given import JOB, WALL_S, places, shell, tenants
from wire import names
from wire.resource import DeviceClass

# Plans are carried out at once, and what was under way arrives.

HALF = 10**9 // 2


def victim(name: str, owner: str = "o") -> Victim:
    return Victim(pod_uid=f"uid-{name}", namespace="ns", name=name, node="n1", owner=owner)


def test_a_pod_on_its_way_arrives_and_one_that_is_terminating_ends() -> None:
    p = pod("p", fraction="0.5")
    made = shell(
        node("n1", 2), p, bind_request(p, "n1", ("g", HALF)), pod("q", gpus=1, bound_to="n1", deleting=True, owner=JOB)
    )
    made.finish_what_is_under_way()
    assert places(made) == {"p": "n1"}
    assert made.cluster.commits.are_settled
    assert made.cluster.validate() == []


def test_victims_of_a_decision_that_stands_go_and_come_again() -> None:
    made = shell(
        node("n1", 2), pod("v", gpus=2, bound_to="n1", owner=JOB), pod("p", gpus=2, priority=5), settings=Settings()
    )
    nomination = Nomination(
        id="i", action=Action.PREEMPT, namespace="ns", places=(Place("uid-p", "n1"),), victims=(victim("v"),)
    )
    made.cluster.commits.nominations.put(nomination)
    made.finish_what_is_under_way()
    assert (places(made), made.evictions) == ({"p": "", "v": ""}, 1)
    assert made.current["uid-v"] == "uid-v~1"
    assert made.cluster.snapshot().preemption_facts.evicted["o"].times == 1
    made.carry_out(made.cluster.decide(10**9, wall_s=made.wall_s))
    assert places(made)["p"] == "n1"


def test_a_retired_reservation_is_gone() -> None:
    made = shell(node("n1", 1), reservation("g"), pod("p", gpus=1))
    assert made.carry_out(Plan(entries=(Retire("r-g", "uid-p"),)))
    assert tenants(made) == {}


def evict(*names: str) -> Plan:
    entry = Evict(pod_group=("ns", "g"), pod_group_uid="pg-g", pods=tuple(map(victim, names)), minimum=2, short=None)
    return Plan(entries=(entry,))


GANG = (pod_group("g", 2), pod("a", gpus=1, group="g", bound_to="n1", owner=JOB))


@pytest.mark.parametrize(
    ("objects", "does"),
    [
        (GANG, True),
        # A gang of which a pod has succeeded is at its end.
        ((*GANG, ended(pod("b", gpus=1, group="g", bound_to="n1"))), False),
    ],
)
def test_what_is_left_of_a_gang_is_evicted_unless_it_is_at_its_end(objects: tuple[object, ...], does: bool) -> None:
    made = shell(node("n1", 2), *objects)
    assert made.carry_out(evict("a")) is does
    assert places(made)["a"] == ("" if does else "n1")


def test_a_pod_has_what_its_placement_says_and_leaves_it_when_it_is_drained() -> None:
    there = bound(pod("q", fraction="0.5", owner=JOB), "n1", ("g", HALF), reservation="r-g", uuid="GPU-1")
    made = shell(node("n1", 1), node("n2", 1), reservation("g", book={"uid-q": HALF}), there, pod("p", fraction="0.5"))
    made.carry_out(made.cluster.decide(10**9))
    assert places(made) == {"p": "n1", "q": "n1"}
    assert tenants(made) == {"r-g": ["uid-p", "uid-q"]}
    record = made.cluster.pod("uid-p")
    assert record is not None
    assert [(held.group, held.nano, held.reservation) for held in record.held] == [("g", HALF, "r-g")]
    made.drain("n1")
    assert places(made) == {"q": ""}  # nothing makes p again
    assert (tenants(made), made.current["uid-p"], made.others_gone) == ({}, None, 0)
    assert made.cluster.validate() == []


def test_a_drain_leaves_daemons_and_takes_pods_of_other_schedulers() -> None:
    made = shell(
        node("n1", 2),
        pod("d", bound_to="n1", owner=("apps/v1", "DaemonSet")),
        pod("o", bound_to="n1", owner=JOB, scheduler="default-scheduler"),
    )
    made.drain("n1")
    assert (places(made), made.others_gone) == ({"d": "n1"}, 1)


def test_a_node_that_is_put_is_there_beside_the_others() -> None:
    made = shell(node("n1", 1), node("n2", 1))
    known = made.cluster.node("n1")
    assert known is not None
    made.put_node(msgspec.structs.replace(known, name="n3", uid="uid-n3"))
    assert made.cluster.node_names() == ["n1", "n2", "n3"]


# A cluster is decided on until nothing changes, in bounded time.


def test_while_all_fits_the_clock_stands() -> None:
    made = shell(node("n1", 4), *(pod(f"p{at}", gpus=1) for at in range(4)))
    seen: list[int] = []
    rest = settle(made, told=seen.append)
    assert (rest.is_at_rest, rest.passed_s, made.wall_s) == (True, 0, WALL_S)
    assert set(places(made).values()) == {"n1"}
    assert seen == [*range(1, rest.rounds + 1)]


def test_the_number_of_decisions_is_bounded() -> None:
    made = shell(node("n1", 4), pod("p", gpus=1))
    assert settle(made, most_rounds=1) == Rest(is_at_rest=False, rounds=1, passed_s=0)


def test_a_gang_below_its_minimum_goes_after_its_grace_time() -> None:
    gang = [pod(name, gpus=1, group="g", bound_to="n1", owner=JOB) for name in ("a", "b")]
    made = shell(node("n1", 4), pod_group("g", 3), *gang)
    rest = settle(made)
    assert places(made) == {"a": "", "b": ""}
    assert (rest.is_at_rest, made.evictions) == (True, 2)
    assert 60 <= rest.passed_s <= LONGEST_S
    assert made.wall_s == WALL_S + rest.passed_s


# Devices are opened, joined, left and closed as the binder would.


def books(made: Cluster) -> dict[str, list[str]]:
    held = made.snapshot().pods.reservations.values()
    return {each.group: sorted(each.book.entries) for each in held if each.book is not None}


def test_the_first_tenant_opens_a_device_and_the_last_closes_it() -> None:
    made = cluster(node("n1", 2, mem_mib=81920), pod("p", fraction="0.5"), pod("q", fraction="0.5"))
    shared, at = Books(made, next_rv), made.node("n1")
    p, q = made.pod("uid-p"), made.pod("uid-q")
    assert at is not None
    assert p is not None
    assert q is not None
    (held,) = shared.join(p, at, [PlannedDevice("g", HALF)])
    assert (held.group, held.nano, held.uuid, held.resource) == ("g", HALF, "GPU-g", names.GPU_RESOURCE)
    shared.join(q, at, [PlannedDevice("g", HALF)])
    assert books(made) == {"g": ["uid-p", "uid-q"]}
    assert free_gpus(made) == 1
    shared.leave("uid-p")
    assert books(made) == {"g": ["uid-q"]}
    shared.leave("uid-q")
    assert books(made) == {}
    assert free_gpus(made) == 2


def test_a_device_that_is_there_is_joined_and_left_as_its_book_says() -> None:
    ran = bound(pod("p", fraction="0.5"), "n1", ("g", HALF), reservation="r-g", uuid="GPU-1")
    made = cluster(node("n1", 1), reservation("g", book={"uid-p": HALF}), ran, pod("q", fraction="0.5"))
    shared, at, q = Books(made, next_rv), made.node("n1"), made.pod("uid-q")
    assert at is not None
    assert q is not None
    (held,) = shared.join(q, at, [PlannedDevice("g", HALF)])
    assert (held.reservation, held.uuid) == ("r-g", "GPU-1")
    made.remove_pod("uid-p")
    shared.leave("uid-p")
    assert books(made) == {"g": ["uid-q"]}


def test_a_part_of_a_slice_takes_the_slice() -> None:
    profile = "nvidia.com/mig-1g.10gb"
    made = cluster(node("n1", 0, extended={profile: "2"}), pod("p"))
    shared, at, p = Books(made, next_rv), made.node("n1"), made.pod("uid-p")
    assert at is not None
    assert p is not None
    shared.join(p, at, [PlannedDevice("g", HALF, resource=profile)])
    view = made.view("n1")
    assert view is not None
    assert made.validate() == []
    shared.close("reservation/n1/g")
    assert books(made) == {}


# Claims that wait for their first consumer are bound at once, and their pods go where the volumes are.

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


# ResourceClaims of pods that are placed are written at once, and free again when these are gone.

_RESOURCE: Any = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": names.GPU_RESOURCE}}


def _held(made: Shell) -> dict[str, tuple[str, ...]]:
    """Devices by claim, as pool/device, with the number of its users."""
    return {
        claim.name: (*(f"{each.pool}/{each.device}" for each in claim.allocation.results), str(len(claim.reserved_for)))
        for claim in made.cluster.claims.claims.all()
        if claim.allocation is not None
    }


def _owned(name: str, owner: str) -> Any:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}
    return claimed(name, ownerReferences=[reference])


def test_pods_get_the_devices_that_are_there_and_the_others_wait() -> None:
    claims = [claimed(name) for name in "xyz"]
    made = shell(node("n1"), GPU, offered("n1", 2), *claims, *(claiming(f"p{name}", name) for name in "xyz"))
    assert settle(made).is_at_rest
    assert places(made) == {"px": "n1", "py": "n1", "pz": ""}
    assert _held(made) == {"x": ("n1/d0", "1"), "y": ("n1/d1", "1")}
    assert made.cluster.validate() == []


def test_a_claim_of_several_pods_is_free_when_the_last_one_is_gone() -> None:
    made = shell(node("n1"), GPU, offered("n1"), claimed("c"), claimed("d"), claiming("p", "c"), claiming("q", "c"))
    settle(made)
    assert _held(made) == {"c": ("n1/d0", "2")}
    made.remove("uid-p")
    assert _held(made) == {"c": ("n1/d0", "1")}
    made.remove("uid-q")
    assert _held(made) == {}
    made.cluster.upsert_pod(waits := claiming("r", "d"))
    again = Shell(made.cluster, [waits], wall_s=made.wall_s)
    settle(again)
    assert places(again)["r"] == "n1"


def test_the_claim_of_a_pod_goes_with_it_and_its_successor_has_one_of_its_own() -> None:
    first = claiming("p", template="of-p", owner=JOB)
    made = shell(node("n1"), node("n2"), GPU, offered("n1"), offered("n2"), _owned("of-p", "p"), first)
    settle(made)
    (before,) = {key: at for key, at in places(made).items() if at}.values()
    made.drain(before)
    settle(made)
    (after,) = {key: at for key, at in places(made).items() if at}.values()
    assert {before, after} == {"n1", "n2"}
    ((name, held),) = _held(made).items()
    assert (name.partition("~")[0], held) == ("of-p", (f"{after}/d0", "1"))
    assert [claim.name for claim in made.cluster.claims.claims.all()] == [name]


def test_a_claim_is_made_for_extended_resources_and_goes_with_its_pod() -> None:
    pods = [pod(name, gpus=1, owner=JOB) for name in ("p", "q")]
    made = shell(node("n1", gpus=0), msgspec.convert(_RESOURCE, DeviceClass), offered("n1"), *pods)
    assert settle(made).is_at_rest
    assert places(made) == {"p": "n1", "q": ""}
    assert [*_held(made).values()] == [("n1/d0", "1")]
    made.remove("uid-p")
    assert settle(made).is_at_rest
    assert places(made) == {"q": "n1"}
    assert len(_held(made)) == 1
    assert made.cluster.validate() == []


# What preemption reads changes with evictions.

SELECTOR = (Requirement("app", "In", ("web",)),)


def with_budget(allowed: int) -> Cluster:
    made = cluster(node("n1"), pod("p", labels={"app": "web"}, bound_to="n1"), pod("q", labels={"app": "web"}))
    budget = Budget(namespace="ns", name="b", selector=SELECTOR, allowed=allowed)
    made.note_preemption_facts(PreemptionFacts(version=7, budgets=(budget,), labels={"uid-p": {"app": "web"}}))
    return made


def record(made: Cluster, uid: str) -> PodRecord:
    found = made.pod(uid)
    assert found is not None
    return found


def allowed(made: Cluster) -> int:
    return made.snapshot().preemption_facts.budgets[0].allowed


def test_a_budget_has_one_less_until_the_successor_runs() -> None:
    made = with_budget(1)
    known = Evictions(made)
    assert known.is_allowed(record(made, "uid-p"))
    known.evicted(record(made, "uid-p"), "owner", wall_s=100, successor="uid-q")
    known.gone("uid-p")
    known.note()
    facts = made.snapshot().preemption_facts
    assert (allowed(made), dict(facts.evicted), dict(facts.labels)) == (0, {"owner": Evicted(1, 100)}, {})
    assert not known.is_allowed(record(made, "uid-q"))
    known.started(record(made, "uid-q"))
    known.note()
    facts = made.snapshot().preemption_facts
    assert (allowed(made), dict(facts.labels)) == (1, {"uid-q": {"app": "web"}})
    assert facts.version > 7


def test_a_pod_that_nothing_makes_again_disturbs_its_budget_for_good() -> None:
    made = with_budget(2)
    known = Evictions(made)
    known.evicted(record(made, "uid-p"), "owner", wall_s=100, successor="")
    known.note()
    assert allowed(made) == 1


def test_nothing_is_told_where_nothing_has_changed() -> None:
    made = with_budget(1)
    known = Evictions(made)
    known.note()
    before = made.generation
    known.note()
    assert made.generation == before

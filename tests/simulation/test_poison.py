"""One poisonous pod or node costs the others nothing: they are bound as soon as without it, and by no more writes.

Measured in virtual time. Every request of our components takes 5 ms, so that whatever is spent on the poison would be
missing elsewhere: calls in flight, places in a queue, whole rounds of decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import anyio
import msgspec
import pytest

from kube.client import errors
from kube.client.resources import PODS
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import shape
from simulator.nodes.shape import ReservationFault
from simulator.replicas import is_ours
from simulator.world import World, WorldSettings
from tests.whole import IS_WHOLE
from verification.hostile.actions import CreatePod
from wire import names

pytestmark = pytest.mark.thorough

NAMESPACE = "team"
#: The name of a poisonous pod, and of a poisonous node.
POISON = "a-poison"
CALL_S = 0.005
PER_S = 100
MOMENT_S = 0.1
NODES_OF_MANY, NODES_OF_FEW = ("64x8x80GiB", "8x8x80GiB") if IS_WHOLE else ("12x8x80GiB", "4x8x80GiB")
MANY, FEW = (1000, 120) if IS_WHOLE else (180, 60)
#: Of the quarters that the others ask for, this many fit beside a poisonous half on its device.
SHARERS = 2
#: As long as the first share of a device that is known by name is waited for, looked at now and then, and what follows.
OPENED_S = SchedulerSettings().opening_s * 5 / 4 + 0.5
#: A machine that answers nothing takes this many of the others' pods: three share a device.
DETAINED = 8 * 3
#: As long as an answer has time, and what it takes to be withdrawn and to start on another machine.
MOVED_S = SchedulerSettings().answer_s + 1.5
#: Further writes for each of its devices: an attempt that is withdrawn, and the next one.
WRITES_PER_DEVICE = 10
#: What it costs many others, all in all.
SUM_S = 200.0
#: Further writes, of a hundred: pods that wait say why, and are tried again.
MORE_WRITES = 10
#: This long after the last arrival all pods are bound that will be.
_AFTER_S = 120.0
_READS = frozenset({"get", "list", "watch"})

Rule = Callable[[Call], Fault | None]


@dataclass(frozen=True, slots=True)
class Poison:
    """Something bad: a pod that comes first, what befalls requests about it, what else is done."""

    name: str
    pod: CreatePod | None = None
    rule: Rule | None = None
    node: Callable[[World], None] | None = None
    busy: Callable[[World], Coroutine[Any, Any, None]] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Times from creation to binding of the other pods, in seconds; what was written about them, by us.

    ``sent``: pods and reservations that the poisonous node took, or refused.
    """

    waits_s: Sequence[float]
    unbound: int
    writes: int
    failed: int
    sent: int

    @property
    def mean_s(self) -> float:
        """How long they waited in the mean."""
        return sum(self.waits_s) / len(self.waits_s)

    def later_than(self, other: Measured) -> int:
        """How many waited longer than anybody there, and a moment."""
        return sum(wait_s > max(other.waits_s) + MOMENT_S for wait_s in self.waits_s)


def _others(count: int) -> list[CreatePod]:
    """Shares and whole GPUs, mixed."""
    asks = ("0.25", "0.25", "0.5", "", "0.25", "0.25", "0.25", "0.5")
    made = []
    for number in range(count):
        ask = asks[number % len(asks)]
        annotations = {names.GPU_FRACTION: ask} if ask else {}
        made.append(CreatePod(at_s=number / PER_S, name=f"p-{number}", annotations=annotations, gpus=0 if ask else 1))
    return made


def _share(**annotations: str) -> CreatePod:
    return CreatePod(at_s=0.0, name=POISON, annotations={names.GPU_FRACTION: "0.5", **annotations})


def _refused(verb: str, plural: str, subresource: str = "", **fault: Any) -> Rule:
    """All requests of one kind about the poisonous pod."""

    def rule(call: Call) -> Fault | None:
        about = POISON in call.name or POISON.encode() in (call.body or b"")
        picked = (call.verb, call.kind.plural, call.subresource) == (verb, plural, subresource) and is_ours(call.user)
        return Fault(**fault) if picked and about else None

    return rule


async def _touched(world: World) -> None:
    """Somebody changes the pod twenty times a second."""
    for number in range(200):
        with contextlib.suppress(errors.NotFound):
            await world.api.patch(PODS, POISON, _note(str(number)), namespace=NAMESPACE)
        await anyio.sleep(0.05)


def _note(text: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {"example.com/note": text}}}


def _node(change: Callable[[Any], None]) -> Callable[[World], None]:
    def apply(world: World) -> None:
        change(world.nodes[POISON])

    return apply


def _reservations(**fault: Any) -> Callable[[World], None]:
    def apply(world: World) -> None:
        world.nodes[POISON].faults.reservation = ReservationFault(**fault)

    return apply


WHOLE = CreatePod(at_s=0.0, name=POISON, gpus=1)
PODS_OF_POISON = [
    Poison("no room for a grant in its annotations", _share(**{"example.com/blob": "x" * 261_000})),
    Poison("asks for ten million devices", _share(**{names.GPU_FRACTION_NUM_DEVICES: "10000000"})),
    Poison("its Binding is forbidden", WHOLE, _refused("create", "pods", "binding", refuse_with=403)),
    Poison("its Binding is always a conflict", WHOLE, _refused("create", "pods", "binding", refuse_with=409)),
    Poison("its Binding fails", WHOLE, _refused("create", "pods", "binding", refuse_with=500)),
    Poison("its Binding is always lost", WHOLE, _refused("create", "pods", "binding", lost="request")),
    Poison("the answer to its Binding is late", WHOLE, _refused("create", "pods", "binding", answer_delay_s=9.0)),
    Poison("the Binding of its share is forbidden", _share(), _refused("create", "pods", "binding", refuse_with=403)),
    Poison("the Binding of its share is always lost", _share(), _refused("create", "pods", "binding", lost="request")),
    Poison("its BindRequest is refused", _share(), _refused("create", "bindrequests", refuse_with=422)),
    Poison("its reservation is refused", _share(), _refused("create", "pods", refuse_with=403)),
    Poison("its status can't be written", _share(), _refused("patch", "pods", "status", refuse_with=403)),
    Poison("somebody changes it again and again", _share(), busy=_touched),
]
NODES_OF_POISON = [
    Poison("kubelet refuses everybody", node=_node(lambda kubelet: kubelet.reject_next(10**9))),
    Poison("reservations never answer", node=_reservations(silent=True)),
    Poison("reservations fail", node=_reservations(broken="no device")),
    Poison("reservations answer late", node=_reservations(delay_s=20.0)),
    Poison("it does not answer", node=_node(lambda kubelet: kubelet.freeze())),
]


def measure(poisons: Sequence[Poison], *, others: int, nodes: str) -> Measured:
    """Run so many pods beside these poisons."""
    loop = {"loop_factory": VirtualTimeLoop}
    return anyio.run(_measure, poisons, others, nodes, backend_options=loop)


async def _measure(poisons: Sequence[Poison], others: int, nodes: str) -> Measured:
    shapes = list(shape.parse([nodes]))
    if any(poison.node for poison in poisons):
        shapes.insert(0, msgspec.structs.replace(shapes[0], name=POISON))
    clock = VirtualClock(asyncio.get_running_loop())
    world = World(shapes, clock=clock, settings=WorldSettings(seed=1))
    async with world:
        rules = [poison.rule for poison in poisons if poison.rule]
        world.server.faults.on_request += [*rules, lambda call: Fault(delay_s=CALL_S) if is_ours(call.user) else None]
        async with anyio.create_task_group() as tasks:
            for poison in poisons:
                if poison.node:
                    poison.node(world)
                if poison.busy:
                    tasks.start_soon(poison.busy, world)
                if poison.pod:
                    await poison.pod.perform(world)
            start_s = anyio.current_time()
            for pod in _others(others):
                await anyio.sleep_until(start_s + pod.at_s)
                await pod.perform(world)
            await anyio.sleep(_AFTER_S)
            tasks.cancel_scope.cancel()
        mine = [pod for pod in world.pods if pod["metadata"]["name"].startswith("p-")]
        assert len(mine) == others
        times = [world.timeline.of[pod["metadata"]["uid"]].to_bind_s for pod in mine]
        writes = [
            entry
            for entry in world.server.audit
            if is_ours(entry.user) and entry.verb not in _READS and POISON not in entry.name
        ]
        return Measured(
            waits_s=[wait_s for wait_s in times if wait_s is not None],
            unbound=times.count(None),
            writes=len(writes),
            sent=len({record.pod_uid for record in world.nodes.ground_truth.history if record.node == POISON}),
            failed=sum(pod["status"].get("phase") == names.FAILED for pod in mine),
        )


@cache
def _clean(others: int, nodes: str) -> Measured:
    return measure([], others=others, nodes=nodes)


def _costs_nobody_anything(poison: Poison, *, others: int, nodes: str) -> None:
    clean, found = _clean(others, nodes), measure([poison], others=others, nodes=nodes)
    assert (found.unbound, found.failed) == (0, 0)
    assert found.later_than(clean) <= SHARERS
    assert max(found.waits_s) <= max(OPENED_S, max(clean.waits_s) + MOMENT_S)
    assert found.writes <= clean.writes * (100 + MORE_WRITES) // 100


def _costs_only_those_who_were_sent_there(poison: Poison, *, others: int, nodes: str) -> tuple[Measured, Measured]:
    clean, found = _clean(others, nodes), measure([poison], others=others, nodes=nodes)
    assert found.sent or found.later_than(clean), "nobody met the poison"
    assert found.unbound == 0
    assert found.failed <= 4
    assert found.later_than(clean) <= DETAINED
    assert max(found.waits_s) <= MOVED_S
    assert found.writes <= clean.writes + 8 * WRITES_PER_DEVICE
    return clean, found


@pytest.mark.parametrize("poison", PODS_OF_POISON if IS_WHOLE else PODS_OF_POISON[::2], ids=lambda poison: poison.name)
def test_a_poisonous_pod_costs_the_others_nothing(poison: Poison) -> None:
    _costs_nobody_anything(poison, others=FEW, nodes=NODES_OF_FEW)


@pytest.mark.parametrize(
    "poison", NODES_OF_POISON if IS_WHOLE else NODES_OF_POISON[::2], ids=lambda poison: poison.name
)
def test_a_poisonous_node_costs_only_those_who_were_sent_there(poison: Poison) -> None:
    _costs_only_those_who_were_sent_there(poison, others=FEW, nodes=NODES_OF_FEW)


def test_one_pod_that_can_never_be_bound_costs_many_others_nothing() -> None:
    (poison,) = (poison for poison in PODS_OF_POISON if poison.name == "the Binding of its share is always lost")
    _costs_nobody_anything(poison, others=MANY, nodes=NODES_OF_MANY)


def test_one_node_that_never_answers_costs_those_of_many_that_were_sent_there_some_seconds() -> None:
    (poison,) = (poison for poison in NODES_OF_POISON if poison.name == "reservations never answer")
    clean, found = _costs_only_those_who_were_sent_there(poison, others=MANY, nodes=NODES_OF_MANY)
    assert found.mean_s <= clean.mean_s + SUM_S / MANY

"""The kinds of commits, each as a small story whose writes can be struck one by one.

``before`` is what happens undisturbed, ``act`` is what is struck. However a write was struck, the pods named in
``ends`` (and no others) are there in the end, in these phases, and the pods of ``probe`` find the room that is left:
what nobody uses is nobody's.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from admission.settings import HandOver
from admission.settings import Settings as AdmissionSettings
from kube.client import errors
from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.nodes.containers import RUN_S
from simulator.nodes.shape import NO_FAULT, ReservationFault
from simulator.replicas import BINDER
from simulator.world import World, WorldSettings
from tests.scheduler.stage import TEAM, create, create_gang, pod, share
from wire import names

Act = Callable[[World], Awaitable[None]]
Manifest = dict[str, Any]

RUNS: Final = "Running"
WAITS: Final = "Pending"
PLAIN: Final = WorldSettings(seed=1)
#: A gang of which a member is lost is released after a minute, and asked again two minutes after a refusal.
PATIENT: Final = WorldSettings(seed=1, gang_grace_s=400.0)


async def nothing(_: World) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A story. ``shapes`` are nodes as in ``4x8x80GiB``.

    ``may_wait`` names pods that may also be there, unbound. Of ``rivals`` (each one or more names) exactly one runs
    whole, and the others wait whole.
    """

    name: str
    shapes: tuple[str, ...]
    act: Act
    ends: Mapping[str, str]
    before: Act = nothing
    may_wait: frozenset[str] = frozenset()
    rivals: frozenset[str] = frozenset()
    probe: tuple[Manifest, ...] = ()
    settings: WorldSettings = field(default=PLAIN)


def making(*pods: Manifest) -> Act:
    """Create pods."""

    async def act(world: World) -> None:
        await create(world, *pods)

    return act


def gang(minimum: int, *pods: Manifest, name: str = "g") -> Act:
    """Create a gang."""

    async def act(world: World) -> None:
        await create_gang(world, name, minimum, *(msgspec.json.decode(msgspec.json.encode(member)) for member in pods))

    return act


def after(seconds: float, then: Act, *, first: Act = nothing) -> Act:
    """Do something, wait, then do something else."""

    async def act(world: World) -> None:
        await first(world)
        await anyio.sleep(seconds)
        await then(world)

    return act


def deleting(name: str, *, again: Manifest | None = None) -> Act:
    """Delete a pod, at once if nothing runs of it; create one of the same name as soon as it is gone."""

    async def act(world: World) -> None:
        await world.api.delete(PODS, name, namespace=TEAM)
        while again is not None:
            try:
                await create(world, again)
            except errors.AlreadyExists:
                await anyio.sleep(0.05)
            else:
                return

    return act


def editing(name: str, annotations: Mapping[str, str]) -> Act:
    """Change annotations of a pod, if that is still allowed."""

    async def act(world: World) -> None:
        with contextlib.suppress(errors.Forbidden):
            await world.api.patch(PODS, name, {"metadata": {"annotations": dict(annotations)}}, namespace=TEAM)

    return act


def slow_bindings(picks: Callable[[Call], bool], delay_s: float, then: Act) -> Act:
    """Let the Bindings of these pods take their time, and go on."""

    def is_slow(call: Call) -> bool:
        return call.subresource == "binding" and picks(call)

    async def act(world: World) -> None:
        world.server.faults.on_request.append(lambda call: Fault(delay_s=delay_s) if is_slow(call) else None)
        await then(world)

    return act


def slow_nodes(slow_s: float, then: Act) -> Act:
    """Let pods take their time to start, reservation pods included, and go on."""

    async def act(world: World) -> None:
        for kubelet in world.nodes.kubelets.values():
            kubelet.faults.slow_start_s = slow_s
        await then(world)

    return act


def rejecting(then: Act, *nodes: str) -> Act:
    """Have these nodes refuse their next pod, if that comes within a minute."""

    async def act(world: World) -> None:
        for node in nodes:
            world.nodes[node].reject_next(1)
        await then(world)
        await anyio.sleep(60)
        for node in nodes:
            world.nodes[node].reject_next(0)

    return act


def silenced(for_s: float, then: Act, *nodes: str) -> Act:
    """Reservation processes say nothing for a while, on these nodes or on all."""

    async def act(world: World) -> None:
        kubelets = [kubelet for name, kubelet in world.nodes.kubelets.items() if not nodes or name in nodes]
        for kubelet in kubelets:
            kubelet.faults.reservation = ReservationFault(silent=True)
        await then(world)
        await anyio.sleep(for_s)
        for kubelet in kubelets:
            kubelet.faults.reservation = NO_FAULT

    return act


async def lose_reservations(world: World) -> None:
    """Force all reservation pods away, as Kubernetes does when a node is lost."""
    api = Api(world.server.transport("system:nodes"), retry=Retry(random.Random(1)))
    for raw in world.pods:
        if raw["metadata"]["namespace"] == names.RESERVATION_NAMESPACE:
            name = raw["metadata"]["name"]
            await api.delete(PODS, name, namespace=names.RESERVATION_NAMESPACE, grace_s=0)


def killing(name: str) -> Act:
    """Delete a pod by force: it is gone, though its containers still run."""

    async def act(world: World) -> None:
        await world.api.delete(PODS, name, namespace=TEAM, grace_s=0)

    return act


async def a_new_scheduler(world: World) -> None:
    """Another scheduler takes over."""
    await world.restart(world.scheduler)


def taking_back(name: str) -> Act:
    """Delete a BindRequest by hand, if it is still there."""

    async def act(world: World) -> None:
        with contextlib.suppress(errors.NotFound):
            await world.api.delete(BIND_REQUESTS, name, namespace=TEAM)

    return act


def _both(first: Act, second: Act) -> Act:
    return after(0.0, second, first=first)


def _two(name: str, fraction: str) -> Manifest:
    return share(name, fraction, **{names.GPU_FRACTION_NUM_DEVICES: "2"})


def _memory(name: str, mib: int) -> Manifest:
    return pod(name, annotations={names.GPU_MEMORY: str(mib)})


def _ending(name: str, fraction: str, run_s: str) -> Manifest:
    made = share(name, fraction, **{RUN_S: run_s})
    made["spec"]["restartPolicy"] = "Never"
    return made


def _running(*names_: str) -> dict[str, str]:
    return dict.fromkeys(names_, RUNS)


def _any(_: object) -> bool:
    return True


_ON_NODE_1: Final = pod(
    "elsewhere", annotations={names.GPU_FRACTION: "0.3"}, nodeSelector={names.HOSTNAME_LABEL: "node-1"}
)

SCENARIOS: Final = (
    Scenario(
        name="a whole GPU",
        shapes=("1x2x80GiB",),
        act=making(pod("a", gpus=1)),
        ends=_running("a"),
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="a first share", shapes=("1x1x80GiB",), act=making(share("a")), ends=_running("a"), probe=(share("probe"),)
    ),
    Scenario(
        name="a first share by ConfigMaps",
        shapes=("1x1x80GiB",),
        act=making(share("a")),
        ends=_running("a"),
        probe=(share("probe"),),
        settings=WorldSettings(seed=1, admission=AdmissionSettings(hand_over=HandOver.CONFIG_MAPS)),
    ),
    Scenario(
        name="a further share",
        shapes=("1x1x80GiB",),
        before=making(share("old")),
        act=making(share("a", "0.3")),
        ends=_running("old", "a"),
        probe=(share("probe", "0.2"),),
    ),
    Scenario(
        name="shares of one decision",
        shapes=("1x1x80GiB",),
        before=making(share("old", "0.2")),
        act=making(*(share(f"s{i}", "0.2") for i in range(3))),
        ends=_running("old", "s0", "s1", "s2"),
        probe=(share("probe", "0.2"),),
    ),
    Scenario(
        name="two devices",
        shapes=("1x2x80GiB",),
        act=making(_two("a", "0.6")),
        ends=_running("a"),
        probe=(share("probe0", "0.4"), share("probe1", "0.4")),
    ),
    Scenario(
        name="two devices, one of them known",
        shapes=("1x2x80GiB",),
        before=making(share("old", "0.3")),
        act=making(_two("a", "0.6")),
        ends=_running("old", "a"),
        probe=(share("probe0", "0.1"), share("probe1", "0.4")),
    ),
    Scenario(
        name="memory on uneven cards",
        shapes=("1x1x24GiB+1x80GiB",),
        act=making(_memory("a", 60_000)),
        ends=_running("a"),
        probe=(_memory("probe", 20_000),),
    ),
    Scenario(
        name="a gang of first shares",
        shapes=("1x2x80GiB",),
        act=gang(3, *(share(f"m{i}") for i in range(3))),
        ends=_running("m0", "m1", "m2"),
        probe=(share("probe"),),
    ),
    Scenario(
        name="a gang of whole GPUs",
        shapes=("2x2x80GiB",),
        act=gang(3, *(pod(f"m{i}", gpus=1) for i in range(3))),
        ends=_running("m0", "m1", "m2"),
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="a gang of further shares",
        shapes=("1x2x80GiB",),
        before=making(share("old0", "0.4"), share("old1", "0.7")),
        act=gang(2, share("m0", "0.3"), share("m1", "0.5")),
        ends=_running("old0", "old1", "m0", "m1"),
        probe=(share("probe", "0.1"),),
    ),
    Scenario(
        name="a gang of shares and whole GPUs",
        shapes=("1x3x80GiB",),
        act=gang(2, share("m0"), pod("m1", gpus=1)),
        ends=_running("m0", "m1"),
        probe=(share("probe0"), pod("probe1", gpus=1)),
    ),
    Scenario(
        name="a gang member edited on its way",
        shapes=("1x4x80GiB",),
        act=slow_bindings(
            lambda call: call.name == "m1",
            2.0,
            after(1.0, editing("m1", {"note": "edited"}), first=gang(3, *(pod(f"m{i}", gpus=1) for i in range(3)))),
        ),
        ends=_running("m0", "m1", "m2"),
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="a gang member deleted on its way and made again",
        shapes=("1x2x80GiB",),
        act=slow_nodes(
            3.0,
            after(
                1.0,
                deleting("m1", again=share("m1", "0.7", **{names.POD_GROUP_NAME: "g"})),
                first=gang(2, *(share(f"m{i}", "0.7") for i in range(2))),
            ),
        ),
        ends=_running("m0", "m1"),
        probe=(share("probe", "0.3"),),
    ),
    Scenario(
        name="a gang that lost a member is released",
        shapes=("1x4x80GiB",),
        act=slow_bindings(
            lambda call: call.name == "m2",
            3.0,
            after(
                80.0,
                nothing,
                first=after(1.0, deleting("m2"), first=gang(3, *(pod(f"m{i}", gpus=1) for i in range(3)))),
            ),
        ),
        ends={},
        may_wait=frozenset({"m0", "m1"}),  # if it was struck before they were bound
        probe=(pod("probe", gpus=4),),
        settings=PATIENT,
    ),
    Scenario(
        name="withdrawn: the reservation says nothing",
        shapes=("1x2x80GiB",),
        act=silenced(60.0, making(share("a"))),
        ends=_running("a"),
        probe=(share("probe0"), pod("probe1", gpus=1)),
    ),
    Scenario(
        name="withdrawn: the reservation says nothing, and another node answers",
        shapes=("1x1x80GiB", "1x2x80GiB"),
        before=after(5.0, nothing, first=making(_ON_NODE_1)),
        act=silenced(60.0, making(share("a", "0.8")), "node-0"),
        ends=_running("elsewhere", "a"),
        probe=(share("probe0", "0.7"), pod("probe1", gpus=1)),
    ),
    Scenario(
        name="withdrawn: the reservation is refused",
        shapes=("2x1x80GiB",),
        act=rejecting(making(share("a")), "node-0", "node-1"),
        ends=_running("a"),
        probe=(share("probe0"), pod("probe1", gpus=1)),
    ),
    Scenario(
        name="withdrawn: the pod is edited",
        shapes=("1x1x80GiB",),
        act=slow_nodes(3.0, after(1.0, editing("a", {names.GPU_FRACTION: "0.7"}), first=making(share("a")))),
        ends=_running("a"),
        probe=(share("probe", "0.3"),),
    ),
    Scenario(
        name="withdrawn: the pod is deleted",
        shapes=("1x1x80GiB",),
        act=slow_nodes(3.0, after(1.0, deleting("a"), first=making(share("a")))),
        ends={},
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="withdrawn: the BindRequest is deleted by hand",
        shapes=("1x2x80GiB",),
        act=slow_nodes(3.0, after(1.0, taking_back("a"), first=making(_two("a", "0.6")))),
        ends=_running("a"),
        probe=(share("probe0", "0.4"), share("probe1", "0.4")),
    ),
    Scenario(
        name="withdrawn: a gang of which one device is refused",
        shapes=("3x1x80GiB",),
        act=rejecting(gang(2, share("m0", "0.7"), share("m1", "0.7")), "node-0"),
        ends=_running("m0", "m1"),
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="withdrawn: the BindRequest is deleted as the Binding is on its way, and somebody wants the room",
        shapes=("1x1x80GiB",),
        act=slow_bindings(
            lambda call: call.user == BINDER,
            3.0,
            after(2.5, _both(taking_back("a"), making(share("b", "0.7"))), first=making(share("a", "0.7"))),
        ),
        ends={},
        rivals=frozenset({"a", "b"}),
    ),
    Scenario(
        name="withdrawn: another scheduler has come, and the pod is edited",
        shapes=("1x1x80GiB",),
        act=slow_nodes(
            3.0, after(0.5, _both(a_new_scheduler, editing("a", {names.GPU_FRACTION: "0.7"})), first=making(share("a")))
        ),
        ends=_running("a"),
        probe=(share("probe", "0.3"),),
    ),
    Scenario(
        name="further shares of which only one fits",
        shapes=("1x1x80GiB",),
        before=making(share("old")),
        act=slow_bindings(_any, 1.0, after(0.5, making(share("b", "0.4")), first=making(share("a", "0.3")))),
        ends=_running("old"),
        rivals=frozenset({"a", "b"}),
    ),
    Scenario(
        name="a first share and a whole GPU of which only one fits",
        shapes=("1x1x80GiB",),
        act=making(share("a"), pod("b", gpus=1)),
        ends={},
        rivals=frozenset({"a", "b"}),
    ),
    Scenario(
        name="two gangs of which only one fits",
        shapes=("1x3x80GiB",),
        act=_both(
            gang(2, share("m0", "0.7"), share("m1", "0.7")), gang(2, share("n0", "0.7"), share("n1", "0.7"), name="h")
        ),
        ends={},
        rivals=frozenset({"m0 m1", "n0 n1"}),
    ),
    Scenario(
        name="the same name again on its way",
        shapes=("1x1x80GiB",),
        act=slow_nodes(3.0, after(1.0, deleting("a", again=share("a", "0.7")), first=making(share("a")))),
        ends=_running("a"),
        probe=(share("probe", "0.3"),),
    ),
    Scenario(
        name="a further share deleted on its way",
        shapes=("1x1x80GiB",),
        before=making(share("old")),
        act=slow_bindings(_any, 2.0, after(1.0, deleting("a"), first=making(share("a", "0.3")))),
        ends=_running("old"),
        probe=(share("probe"),),
    ),
    Scenario(
        name="a further share edited on its way",
        shapes=("1x1x80GiB",),
        before=making(share("old")),
        act=slow_bindings(
            _any, 2.0, after(1.0, editing("a", {names.GPU_FRACTION: "0.4"}), first=making(share("a", "0.3")))
        ),
        ends=_running("old", "a"),
        probe=(share("probe", "0.1"),),
    ),
    Scenario(
        name="a further share made again on its way",
        shapes=("1x1x80GiB",),
        before=making(share("old")),
        act=slow_bindings(
            _any, 2.0, after(1.0, deleting("a", again=share("a", "0.4")), first=making(share("a", "0.3")))
        ),
        ends=_running("old", "a"),
        probe=(share("probe", "0.1"),),
    ),
    Scenario(
        name="an end of one share of two",
        shapes=("1x1x80GiB",),
        before=making(share("old"), share("a")),
        act=after(5.0, nothing, first=deleting("a")),
        ends=_running("old"),
        probe=(share("probe"),),
    ),
    Scenario(
        name="a share deleted by force",
        shapes=("1x1x80GiB",),
        before=making(share("old"), share("a")),
        act=after(120.0, nothing, first=killing("a")),
        ends=_running("old"),
        probe=(share("probe"),),
    ),
    Scenario(
        name="a share that succeeds",
        shapes=("1x1x80GiB",),
        act=after(20.0, nothing, first=making(_ending("a", "0.5", "2"))),
        ends={"a": "Succeeded"},
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="retired: idle for long",
        shapes=("1x1x80GiB",),
        before=making(share("a")),
        act=after(15.0, nothing, first=deleting("a")),
        ends={},
        probe=(pod("probe", gpus=1),),
    ),
    Scenario(
        name="retired: a whole GPU is wanted",
        shapes=("1x1x80GiB",),
        before=making(share("a")),
        act=after(1.0, making(pod("b", gpus=1)), first=deleting("a")),
        ends=_running("b"),
    ),
    Scenario(
        name="a share comes as its device is retired",
        shapes=("1x1x80GiB",),
        before=making(share("a")),
        act=after(11.0, making(share("b")), first=deleting("a")),
        ends=_running("b"),
        probe=(share("probe"),),
    ),
    Scenario(
        name="a lost reservation is made anew",
        shapes=("1x1x80GiB",),
        before=making(share("a"), share("b", "0.2")),
        act=lose_reservations,
        ends=_running("a", "b"),
        probe=(share("probe", "0.3"),),
    ),
)

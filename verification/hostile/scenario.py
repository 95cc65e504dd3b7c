"""A run as data: the cluster, what users do and when, what goes wrong and when. A seed makes one; it alone is run.

So what a seed found is kept as a file that outlives changes of the generator, and made smaller by leaving parts out.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from admission.settings import Choices, HandOver
from admission.settings import Settings as AdmissionSettings
from binder.settings import BinderSettings
from gpu.dialects.settings import DialectSettings
from kube.lead.lease import LeaseSettings
from scheduler.core.model.settings import Settings
from scheduler.settings import PartitioningSettings, ScalingSettings, SchedulerSettings
from simulator.checks.limits import Lateness
from simulator.mig.hardware import SlicedNode
from simulator.nodes import shape
from simulator.nodes.shape import KubeletSettings, NodeShape
from simulator.world import GANG_GRACE_S, WorldSettings
from verification.hostile import queueing, variations, workload
from verification.hostile.actions import Action
from verification.hostile.faults import components, drawing, nodes, reservations
from verification.hostile.faults import nodes as machines
from verification.hostile.faults.kinds import OF_AGENTS, OF_CLAIMS, OF_PREEMPTION, Fault, unpromised
from verification.hostile.faults.nodes import SlowStarts
from verification.hostile.faults.processes import TwoLeaders
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.variations import Timers
from wire import names
from wire.units import SECOND_NS

VERSION: Final = 1
#: How long users go on. Faults go on for longer.
_DURATIONS_S: Final = (5.0, 20.0, 60.0)

#: Longer than by default: renewals are most of what happens in a quiet hour.
_LEASES: Final = LeaseSettings(duration_s=60, renew_deadline_s=45.0, retry_s=20.0, poll_s=15.0)
_SHAPES: Final = (
    ("1x2x40GiB",),
    ("1x1x24GiB",),
    ("2x2x80GiB",),
    ("1x4x80GiB", "1x1x24GiB"),
    ("2x1x80GiB", "1x2x16GiB"),
    ("3x2x80GiB",),
    ("1x8x80GiB",),
    ("1x1x24GiB+1x80GiB", "1x2x40GiB"),
)
#: In a tenth of the runs there are at least twenty nodes, and more pods than in the others.
_MANY: Final = (("20x1x40GiB",), ("16x1x24GiB", "6x2x80GiB"), ("18x2x40GiB", "4x0"))
_MANY_PODS: Final = 30
#: Parts of the runs in which pods take long to end, and in which timers are not what they are by default.
_SLOW_ENDS: Final = 0.1
_OTHER_TIMERS: Final = 0.2
#: How late who decides may hear of queues where nothing is late, and how long it takes to catch up after a fault.
_AT_ONCE_S: Final = 1.0
_CATCHES_UP_S: Final = 120.0
#: Faults that strike neither watches nor requests, nor who decides.
_LEAVE_CACHES: Final = (components, machines, nodes, reservations)
#: Parts of the runs in which room is made, and in which teams take from each other on a full cluster.
_PREEMPTION: Final = 0.8
_CONTENDED: Final = 0.65
#: Part of the latter in which a fault befalls evictions or the record of nominations at least.
_PREEMPTION_IS_STRUCK: Final = 0.6
#: Part of the runs in which shares that fit nowhere ask an autoscaler for nodes.
_AUTOSCALING: Final = 0.35
#: Part of the runs in which a node starts pods late while shares are under way to it.
_LAGS: Final = 0.15
#: Part of the runs in which nodes are kept for groups that have waited too long; how long that is, of how many GPUs.
_KEEPS_NODES: Final = 0.6
_PATIENCES_S: Final = (1.0, 5.0, 5.0, 20.0, 60.0)
_RESERVED_NODES_PERCENT: Final = (10, 30, 50, 100)
#: GPUs rest for less time than by default, so that more happens to them; nodes of which GPUs are offered.
_PARTITIONING: Final = PartitioningSettings(rest_s=10.0, patience_s=30.0)
_OFFERED: Final = {names.NODE_MIG: names.MIG_DYNAMIC, names.NODE_MIG_STRATEGY: "mixed"}
#: Part of the runs in which pods are told what would let them start.
_SUGGESTS: Final = 0.4
#: Part of the runs in which nodes may have an agent, and then how likely each node has one.
_HAS_AGENTS: Final = 0.4
_HAS_AN_AGENT: Final = (0.5, 1.0, 1.0)
#: Containers that take no longer than this to end are within a gang's grace time already.
_SHORT_STOP_S: Final = 5.0


class Switches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the cluster is set up. Times in seconds."""

    hand_over: HandOver = HandOver.ANNOTATIONS
    #: Node pools that have a scheduler of their own.
    pools: tuple[str, ...] = ()
    schedulers: int = 1
    binders: int = 1
    #: Whether replicas elect a leader; without it all of them work at once.
    election: bool = False
    #: Watch events are late by up to so much, all the time.
    event_delay_s: float = 0.0
    #: How long containers take to end.
    stop_s: float = 0.2
    shuffle_devices: bool = True
    #: Whether shares that fit nowhere ask for nodes, which nobody adds.
    autoscaling: bool = False
    #: Whether admission is asked about Queues and PodGroups, or does not answer when they are written.
    checks_queues: bool = False
    #: How long scheduler, binder, leases and kubelets wait, where that is not what it is by default.
    timers: Timers = Timers()
    #: Whether pods are evicted for others.
    preemption: bool = False
    #: Part of the GPUs that is kept for groups that have waited for ``patience_s``; 0 keeps none.
    reserved_nodes_percent: int = 0
    patience_s: float = 600.0
    #: Whether conditions of pods say what would let them start.
    suggestions: bool = False
    #: Nodes that have an agent, by name.
    agents: tuple[str, ...] = ()
    #: Nodes whose agents make MIG slices; the scheduler asks for them where there are any.
    sliced: tuple[SlicedNode, ...] = ()
    #: Whether shares of GPUs may be had by claims, where no device plugin offers GPUs.
    shares_by_claims: bool = False
    #: How the words of other systems are read.
    dialects: DialectSettings = DialectSettings()


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that happens in a run. Times are virtual seconds since the cluster was ready.

    ``seed`` is what the components' own randomness is made from; ``shapes`` are node shapes (simulator/nodes/shape.py).
    At ``calm_s`` every fault is over; the run goes on until nothing changes any more.
    """

    version: int = VERSION
    seed: int
    shapes: tuple[str, ...]
    settings: Switches = Switches()
    actions: tuple[Action, ...] = ()
    faults: tuple[Fault, ...] = ()
    calm_s: float

    @property
    def nodes(self) -> tuple[NodeShape, ...]:
        """The nodes. Raises simulator.nodes.shape.MalformedShape."""
        sliced = {each.node for each in self.settings.sliced}
        return tuple(
            msgspec.structs.replace(node, labels=_OFFERED) if node.name in sliced else node
            for node in shape.parse(self.shapes)
        )

    @property
    def sliced(self) -> tuple[SlicedNode, ...]:
        """Those of them whose agents make MIG slices."""
        there = {node.name for node in self.nodes}
        return tuple(each for each in self.settings.sliced if each.node in there)

    @property
    def world(self) -> WorldSettings:
        """Settings of the simulated cluster."""
        switches = self.settings
        timers = switches.timers
        kubelet = KubeletSettings(stop_s=switches.stop_s, shuffle_devices=switches.shuffle_devices)
        scaling = ScalingSettings() if switches.autoscaling else None
        return WorldSettings(
            seed=self.seed,
            event_delay_s=switches.event_delay_s,
            lateness=Lateness(_AT_ONCE_S + 2 * switches.event_delay_s, spans=tuple(self._late())),
            checks_queues=switches.checks_queues,
            agents=frozenset(switches.agents) & {node.name for node in self.nodes},
            pools=switches.pools,
            schedulers=switches.schedulers,
            binders=switches.binders,
            election=timers.leases(_LEASES) if switches.election else None,
            gang_grace_s=GANG_GRACE_S * timers.longest_factor + max(0.0, switches.stop_s - _SHORT_STOP_S),
            kubelet=msgspec.structs.replace(kubelet, **timers.kubelet),
            admission=AdmissionSettings(
                hand_over=switches.hand_over,
                shares_by_claims=switches.shares_by_claims,
                choices=Choices(dialects=switches.dialects),
            ),
            scheduler=msgspec.structs.replace(
                SchedulerSettings(
                    decisions=self._decisions,
                    scaling=scaling,
                    partitioning=_PARTITIONING if switches.sliced else None,
                    suggestions=switches.suggestions,
                ),
                **timers.scheduler,
            ),
            binder=msgspec.structs.replace(BinderSettings(), **timers.binder),
        )

    @property
    def _decisions(self) -> Settings:
        switches = self.settings
        return Settings(
            preemption=switches.preemption,
            reserved_nodes_percent=switches.reserved_nodes_percent,
            reserved_nodes_patience_ns=round(switches.patience_s * SECOND_NS),
        )

    @property
    def unpromised(self) -> frozenset[str]:
        """Invariants that nobody can hold: what was decided of queues, room and claims one scheduler alone knows."""
        is_led = self.settings.election and not any(isinstance(fault, TwoLeaders) for fault in self.faults)
        of_one = frozenset() if is_led or self.settings.schedulers == 1 else frozenset({"S6", "S14", "S16", "S17"})
        return unpromised(self.faults) | of_one

    def _late(self) -> Iterator[tuple[float, float]]:
        """When who decides may hear of queues late."""
        for fault in self.faults:
            if type(fault).__module__ not in {module.__name__ for module in _LEAVE_CACHES}:
                yield fault.at_s, fault.end_s + _CATCHES_UP_S


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario that is kept because it found something: which invariant it broke, and what was wrong."""

    violates: str
    story: str = ""
    scenario: Scenario


class MalformedScript(ValueError):
    """Raised when a text is not a script of this version; the message names the field and what is allowed."""


def encode(script: Script) -> bytes:
    """Write a script as JSON for people: indented, one field a line."""
    return msgspec.json.format(msgspec.json.encode(script), indent=2) + b"\n"


def decode(text: bytes) -> Script:
    """Read a script. Raises MalformedScript."""
    try:
        script = msgspec.json.decode(text, type=Script)
    except msgspec.DecodeError as error:
        raise MalformedScript(str(error)) from error
    if script.scenario.version != VERSION:
        raise MalformedScript(f"scenario.version: {script.scenario.version}; this code reads {VERSION}")
    return script


def scenario_of(seed: int, kinds: Collection[str] | None = None, *, with_claims: bool = False) -> Scenario:
    """Make a scenario from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    ``with_claims``: users have claims, which they have in a tenth of the runs anyway.
    Raises ValueError for a kind that is not known. Parts are drawn from sources of their own, so that a change of the
    faults' generator leaves cluster and users as they are.
    """
    has_many = _rng(seed, "many nodes").random() < 0.1
    shapes = _rng(seed, "shapes").choice(_MANY if has_many else _SHAPES)
    room = _rng(seed, "room")
    preemption = room.random() < _PREEMPTION
    is_contended = preemption and not has_many and room.random() < _CONTENDED / _PREEMPTION
    if is_contended:
        shapes = room.choice(queueing.SHAPES)
    nodes = shape.parse(shapes)
    settings = _switches(_rng(seed, "settings"))
    settings = msgspec.structs.replace(settings, autoscaling=is_scaled(seed), preemption=preemption)
    rng = _rng(seed, "berths")
    if rng.random() < _KEEPS_NODES:
        percent, patience_s = rng.choice(_RESERVED_NODES_PERCENT), rng.choice(_PATIENCES_S)
        settings = msgspec.structs.replace(settings, reserved_nodes_percent=percent, patience_s=patience_s)
    duration_s = _rng(seed, "duration").choice(queueing.DURATIONS_S if is_contended else _DURATIONS_S)
    size = _MANY_PODS if has_many else workload.PODS
    actions = workload.draw(_rng(seed, "actions"), shapes=nodes, duration_s=duration_s, size=size)
    actions = workload.respoken(_rng(seed, "dialects"), actions, shapes=nodes)
    rng = _rng(seed, "queues")
    actions = queueing.queued(rng, actions, shapes=nodes, duration_s=duration_s)
    if is_contended:
        actions = queueing.contended(room, shapes=nodes, duration_s=duration_s)
    claims = _rng(seed, "claims")
    actions = variations.claimed(claims, actions, shapes=nodes, duration_s=duration_s, always=with_claims)
    actions = variations.kept_apart(_rng(seed, "apart"), actions)
    settings = msgspec.structs.replace(settings, checks_queues=_has_queues(actions) and rng.random() < 0.5)
    rng = _rng(seed, "graces")
    if rng.random() < _SLOW_ENDS:
        settings = msgspec.structs.replace(settings, stop_s=rng.choice(variations.STOPS_S))
        actions = variations.stretched(rng, actions)
    rng = _rng(seed, "timers")
    if rng.random() < _OTHER_TIMERS:
        settings = msgspec.structs.replace(settings, timers=variations.draw(rng))
    settings = msgspec.structs.replace(settings, agents=_agents(_rng(seed, "agents"), nodes))
    settings = msgspec.structs.replace(settings, suggestions=_rng(seed, "suggestions").random() < _SUGGESTS)
    faults = drawing.draw(
        _rng(seed, "faults"),
        nodes,
        kinds=kinds,
        schedulers=settings.schedulers,
        binders=settings.binders,
        duration_s=2 * duration_s,
        about=_about(settings, actions),
        surely=(OF_CLAIMS, OF_PREEMPTION) if is_contended and room.random() < _PREEMPTION_IS_STRUCK else (OF_CLAIMS,),
    )
    others = [node for node in nodes if node.cards_mib]
    late, coming = lagging(seed, others, kinds=kinds, duration_s=duration_s)
    return scenario_made(seed, shapes, settings, actions=[*actions, *coming], faults=[*faults, *late])


def scenario_made(
    seed: int, shapes: tuple[str, ...], settings: Switches, *, actions: Iterable[Action], faults: Iterable[Fault]
) -> Scenario:
    """Return the scenario in which these things happen, each at its time; it is calm once the last one is over."""
    by_time = tuple(sorted(actions, key=lambda action: action.at_s))
    struck = tuple(sorted(faults, key=lambda fault: fault.at_s))
    calm_s = max((*(action.at_s for action in by_time), *(fault.end_s for fault in struck)), default=0.0)
    return Scenario(seed=seed, shapes=shapes, settings=settings, actions=by_time, faults=struck, calm_s=calm_s)


def _about(settings: Switches, actions: Collection[Action]) -> list[frozenset[str]]:
    """Kinds of faults that only some runs can have."""
    are_there = {
        OF_PREEMPTION: settings.preemption,
        OF_AGENTS: settings.agents,
        OF_CLAIMS: variations.has_claims(actions),
    }
    return [kinds for kinds, is_there in are_there.items() if is_there]


def _has_queues(actions: Collection[Action]) -> bool:
    return any(isinstance(action, CreateQueue) for action in actions)


def _agents(rng: random.Random, nodes: Collection[NodeShape]) -> tuple[str, ...]:
    part = rng.choice(_HAS_AN_AGENT) if rng.random() < _HAS_AGENTS else 0.0
    return tuple(node.name for node in nodes if rng.random() < part)


def _switches(rng: random.Random) -> Switches:
    schedulers, binders = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 1, 2])
    return Switches(
        hand_over=rng.choice([HandOver.ANNOTATIONS, HandOver.ANNOTATIONS, HandOver.CONFIG_MAPS]),
        schedulers=schedulers,
        binders=binders,
        election=max(schedulers, binders) > 1 and rng.random() < 0.5,
        event_delay_s=rng.choice([0.0, 0.0, 0.1, 0.5]),
        stop_s=rng.choice([0.0, 0.2, 0.2, 5.0]),
    )


def lagging(
    seed: int | str,
    nodes: Sequence[NodeShape],
    *,
    kinds: Collection[str] | None,
    duration_s: float,
    part: float = _LAGS,
) -> tuple[list[Fault], list[Action]]:
    """Draw whether one of these nodes, all with GPUs, starts pods late while shares are under way to it.

    ``seed``: of the run, with its kind; ``part``: of the runs.
    """
    rng = _rng(seed, "lagging")
    if not (kinds is None or "slow-starts" in kinds) or len(nodes) < 2 or rng.random() >= part:
        return [], []
    late = SlowStarts(at_s=round(rng.uniform(0.1, 0.5) * duration_s, 3), for_s=90.0, node=nodes[0].name, slow_s=90.0)
    return [late], [*workload.while_one_lags(rng, nodes, at_s=late.at_s)]


def is_scaled(seed: int | str) -> bool:
    """Whether shares that fit nowhere ask an autoscaler for nodes. ``seed``: of the run, with its kind."""
    return _rng(seed, "autoscaling").random() < _AUTOSCALING


def _rng(seed: int | str, purpose: str) -> random.Random:
    return random.Random(f"{seed}/{purpose}")

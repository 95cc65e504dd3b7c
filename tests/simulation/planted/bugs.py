"""The planted bugs: one for each root cause of the field (R1-R12), those of KAI that are others still, of queues (Q),
of room that is made (P), of nodes that are kept for groups (B), of node pools (N), of ResourceClaims (C), of MIG slices
on demand (M), and of suggested changes (S).

Each is a faulty collaborator that takes the place of a right one. ``breaks`` names what its script must show broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from admission.review import PodAdmission
from binder.app import Binder
from kube.client.transport import Transport
from scheduler.app import Scheduler
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.cluster import Cluster
from scheduler.core.what_if.edits import Edit
from simulator import policies
from simulator.apiserver.transport import MemoryTransport
from simulator.components import Hook, Parts, hooks
from simulator.policies import Policy
from simulator.replicas import BINDER, SCHEDULER
from tests.simulation.planted import clusters, devices, queues, wires

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """``root``: the root cause; ``story``: what was done wrong, and who did it first."""

    root: str
    story: str
    parts: Parts


def _on(wire: Callable[[Transport], Transport], *users: str) -> Parts:
    """Parts in which the components of these roles are connected by a faulty wire."""
    return Parts(wire=partial(_wired, wire, users or (SCHEDULER, BINDER)))


def _wired(
    wire: Callable[[Transport], Transport], users: tuple[str, ...], user: str, transport: MemoryTransport
) -> Transport:
    return wire(transport) if user.startswith(users) else transport


def deciding_on(cluster: type[Cluster]) -> Parts:
    return Parts(scheduler=partial(_scheduler, cluster))


def _scheduler(cluster: type[Cluster], api: Any, *, settings: Any, **rest: Any) -> Scheduler:
    return Scheduler(api, settings=settings, cluster=cluster(settings.decisions), **rest)


class _Everything(Hook):
    """A webhook without conditions."""

    @override
    def matches(self, obj: Json, namespace_labels: dict[str, str]) -> bool:
        return True


def _for_everybody(admission: PodAdmission) -> Sequence[Hook]:
    """Every pod of the cluster is asked about, and one without annotations makes the webhook fail."""

    def answer(hook: Hook, review: Json) -> Json:
        _ = review["request"]["object"]["metadata"]["annotations"]
        return hook.answer(review)

    return [
        _Everything(hook.name, hook.mutating, hook.resource, hook.operations, partial(answer, hook))
        for hook in hooks(admission)
    ]


def _defaulting(admission: PodAdmission) -> Sequence[Hook]:
    """Admission reads what can't be read as a default."""

    def answer(hook: Hook, review: Json) -> Json:
        return hook.answer(msgspec.json.decode(wires.defaulted(msgspec.json.encode(review))))

    return [
        Hook(hook.name, hook.mutating, hook.resource, hook.operations, partial(answer, hook))
        for hook in hooks(admission)
    ]


def _editable(is_ours: Callable[[str], bool]) -> Iterator[Policy]:
    """Users may change what a pod asks for when it has it."""
    return (policy for policy in policies.policies(is_ours) if policy.name != "moorage-fixed-asks")


class TriesNothingAgain(Suggesting):
    """A suggestion that was told once stays in the condition until the reason changes, whether it helps or not."""

    @override
    async def _still(self, key: Any, said: tuple[Edit, ...]) -> tuple[Edit, ...]:
        return said


class TriesNothing(Suggesting):
    """Each suggestion is told untried."""

    @override
    async def _helps(self, key: Any, edit: Edit | None) -> bool:
        return edit is not None


def suggesting_as(kind: type[Suggesting], api: Any, **rest: Any) -> Scheduler:
    """Make a scheduler that suggests in this way."""
    made = Scheduler(api, **rest)
    if made._suggesting is not None:
        made._suggesting.__class__ = kind
    return made


BUGS: Final[Mapping[str, Bug]] = {
    "R1": Bug(
        "decision on a stale cache",
        "what is deleted is not said to be as it was seen (KAI#1103: a reservation went while a pod came)",
        _on(wires.DeletesUnfenced),
    ),
    "R1-own-writes": Bug(
        "decision on a stale cache",
        "the binder reads pods through its cache, which has not seen its own writes (KAI, traced)",
        _on(wires.ReadsThroughCache, BINDER),
    ),
    "R1-node": Bug(
        "decision on a stale cache",
        "a reservation is looked up by its group without its node (KAI)",
        Parts(
            binder=partial(Binder, desk=queues.LooksUpWithoutNode),
            scheduler=partial(_scheduler, clusters.NamesGroupsByPod),
        ),
    ),
    "R2": Bug(
        "allocation in several writes",
        "a pod is bound first and told its devices then (VOL#5532, HAMi#2923)",
        _on(wires.BindsInTwoWrites),
    ),
    "R2-edited": Bug(
        "allocation in what users can edit",
        "a bound pod is charged what its annotation asks now (KAI: a share is freed by an edit)",
        Parts(policies=_editable, wire=partial(_wired, wires.ChargesWhatIsAskedNow, (SCHEDULER, BINDER))),
    ),
    "R3": Bug(
        "work before all is synced",
        "a scheduler that was started anew decides on half a list of pods (VOL#5174, KUEUE#10495)",
        _on(wires.StartsHalfSynced, SCHEDULER),
    ),
    "R4": Bug(
        "rounding",
        "memory is counted in whole GiB, fractions in hundredths, rounded down (KAI#416)",
        _on(wires.RoundsDown),
    ),
    "R4-slices": Bug(
        "amounts of two kinds taken for each other",
        "a part of a MIG slice is charged as that part of its card, so that a slice is given out many times",
        _on(wires.CountsSlicesAsCards),
    ),
    "R5": Bug(
        "a free map that is not updated",
        "what was decided is charged when it is seen, so a bulk arrival gets one place many times (KAI#2153)",
        deciding_on(clusters.ForgetsWhatItDecided),
    ),
    "R6": Bug(
        "a hold outlives its reason",
        "a finalizer is taken off once, and not again if that fails (YUNIKORN-3092, KAI#848)",
        _on(wires.TidiesUpOnce, BINDER),
    ),
    "R7": Bug(
        "a lock across calls",
        "a node is locked by an annotation until the Binding is answered (HAMi#1367)",
        _on(wires.LocksNodes),
    ),
    "R8": Bug(
        "retry without progress",
        "what failed is tried again at once, at the same place (KAI#848, KAI#2074)",
        deciding_on(clusters.NeverBacksOff),
    ),
    "R9": Bug(
        "generations mixed",
        "dead members of a gang count as bound (ARM#4634, SP#930)",
        deciding_on(clusters.CountsTheDead),
    ),
    "R9-retry": Bug(
        "generations mixed",
        "a Binding that failed is posted again later, though its attempt was withdrawn (KAI, traced)",
        _on(wires.RetriesWhatWasWithdrawn),
    ),
    "R9-versions": Bug(
        "generations mixed",
        "an older binder drops the fields of a book's entry that it does not know",
        _on(wires.DropsWhatIsNewer, BINDER),
    ),
    "R10": Bug(
        "memory without bound",
        "the scheduler keeps every version of every pod (KAI#1634)",
        deciding_on(clusters.KeepsEverything),
    ),
    "R11": Bug(
        "a webhook takes the cluster down",
        "the webhook asks about every pod and fails on some (KAI#227)",
        Parts(hooks=_for_everybody),
    ),
    "R12": Bug(
        "malformed values",
        "what can't be read as a fraction is taken for a tenth (KAI#1798)",
        Parts(hooks=_defaulting, wire=partial(_wired, wires.DefaultsWhatIsMalformed, (SCHEDULER, BINDER))),
    ),
    "Q-on-its-way": Bug(
        "a limit is passed",
        "a limit is checked without what is on its way to be bound",
        deciding_on(queues.counting(queues.ForgetsWhatIsOnItsWay)),
    ),
    "Q-relabelled": Bug(
        "a limit is passed",
        "a pod that runs counts by its current label and PodGroup (KAI)",
        deciding_on(queues.counting(queues.CountsByTheCurrentLabel)),
    ),
    "Q-leaf": Bug(
        "a limit is passed",
        "the limit of a leaf is checked, and not those of the queues above it",
        deciding_on(queues.counting(queues.LooksAtLeavesOnly)),
    ),
    "Q-rounded": Bug(
        "a limit is passed",
        "limits are read in hundredths of a GPU",
        deciding_on(queues.counting(queues.RoundsAmounts)),
    ),
    "Q-asleep": Bug(
        "a sleeper is not woken",
        "pods that a queue holds back sleep until a Queue object changes",
        deciding_on(queues.NeverWakes),
    ),
    "P-budget": Bug(
        "pods are taken past their budget",
        "victims are deleted, and no PodDisruptionBudget is asked (KAI)",
        _on(queues.DeletesVictims, SCHEDULER),
    ),
    "P-preemption": Bug(
        "freed room is anybody's",
        "what victims leave is not kept for the pod that they left for",
        deciding_on(queues.KeepsNothing),
    ),
    "P-unwritten": Bug(
        "nobody knows why a pod was taken",
        "pods are evicted, and then the nomination is written that names them",
        _on(queues.EvictsFirst, SCHEDULER),
    ),
    "P-victims": Bug(
        "what is taken is counted as kept",
        "pods that have to go count in their queue until they are gone, so more is taken from it (double eviction)",
        deciding_on(queues.counting(queues.CountsVictims)),
    ),
    "P-core": Bug(
        "a gang is taken in part",
        "of the core of a gang one pod stays, which is of use to nobody",
        deciding_on(queues.TakesInPart),
    ),
    "P-age": Bug(
        "pods are taken too early",
        "the minimum runtime counts from the creation of a pod",
        deciding_on(queues.AgesFromCreation),
    ),
    "B-starved": Bug(
        "nodes are kept from one that has the better right",
        "nodes that are kept for a group are kept from queues that are short of their quota, too",
        deciding_on(queues.KeepsOffTheStarved),
    ),
    "C-twice": Bug(
        "a decision on what another scheduler changes",
        "a pod is bound by its claim though an earlier claim has the device",
        deciding_on(devices.having(devices.TrustsItsOwnWrite)),
    ),
    "C-early": Bug(
        "a pod is bound before its claims are its own",
        "a claim that is allocated is not reserved for further pods that name it",
        deciding_on(devices.having(devices.ReservesNothingThatIsAllocated)),
    ),
    "C-gang": Bug(
        "a gang is started in part",
        "members of a gang are prepared and bound each on its own",
        _on(devices.PreparesOneByOne, SCHEDULER),
    ),
    "C-counters": Bug(
        "amounts that are not counted",
        "what devices take of counters of their pool is not read",
        _on(devices.SeesNoCounters, SCHEDULER),
    ),
    "C-kept": Bug(
        "a hold outlives its reason",
        "a claim stays reserved for a pod that can't be bound by it",
        deciding_on(devices.having(devices.GivesNothingBack)),
    ),
    "C-asleep": Bug(
        "a sleeper is not woken",
        "pods that wait for devices sleep until something else changes",
        deciding_on(devices.having(devices.wakes_nobody)),
    ),
    "E-kept": Bug(
        "a hold outlives its reason",
        "a claim that a scheduler made before it died stays with its pod, which waits",
        deciding_on(devices.having(devices.KeepsWhatItMade)),
    ),
    "E-taken": Bug(
        "amounts that are not counted",
        "devices of claims that were made for extended resources are not taken",
        deciding_on(devices.having(devices.ForgetsWhatItMade)),
    ),
    "E-parts": Bug(
        "amounts that are not counted",
        "what a share takes of the memory of a device is read as one byte",
        _on(devices.SeesNoParts, SCHEDULER),
    ),
    "N-tenants": Bug(
        "a scheduler takes what is another one's",
        "a pod that runs is of the pool of its node, so it goes for a pod of a pool that is not its own",
        deciding_on(queues.TakesTenants),
    ),
    "N-queues": Bug(
        "a scheduler takes what is another one's",
        "a scheduler uses the Queues of all pools, so each of two gives out all of a limit",
        _on(queues.UsesAllQueues, queues.USER),
    ),
    "N-nodes": Bug(
        "a scheduler takes what is another one's",
        "a scheduler places pods on the nodes of all pools",
        _on(queues.UsesAllNodes, queues.USER),
    ),
    "M-kubelet": Bug(
        "a slice goes that somebody has",
        "an agent does not ask kubelet which pods have slices",
        Parts(partitioner=devices.AsksNoKubelet),
    ),
    "M-process": Bug(
        "a slice goes that somebody has",
        "an agent does not look for processes, so it misses containers that kubelet forgot",
        Parts(partitioner=devices.SeesNoProcess),
    ),
    "M-offered": Bug(
        "a slice goes that somebody has",
        "an agent offers slices until they are gone",
        Parts(partitioner=devices.WithdrawsNothing),
    ),
    "M-once": Bug(
        "a slice goes that somebody has",
        "an agent looks once, and misses what kubelet gave just before",
        Parts(partitioner=devices.LooksOnce),
    ),
    "M-restart": Bug(
        "a slice goes that somebody has",
        "an agent believes a kubelet that has just started and lists no pods",
        Parts(partitioner=devices.BelievesAnyKubelet),
    ),
    "S-standing": Bug(
        "a suggestion that is not true",
        "a change that was suggested is not tried again",
        Parts(scheduler=partial(suggesting_as, TriesNothingAgain)),
    ),
    "S-untried": Bug(
        "a suggestion that is not true",
        "changes are suggested that were not tried",
        Parts(scheduler=partial(suggesting_as, TriesNothing)),
    ),
}

"""Nodes that a snapshot supposes for those who fit nowhere: one each, as large as it asks (``NodesAsAsked``).

This is what an autoscaler would bring. A share alone gets none while whole GPUs are free that it can't use, as their
cards are too small: an autoscaler would see a place for it. A member of a gang gets one in any case, since its gang
asks for all that it would open. Pods alone without shares get none: autoscalers see by themselves what they ask.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import HeldBack

#: The name of all of them; no node has it.
SUPPOSED: Final = "(supposed)"
#: What it costs to see whether a class gets one, in operations, with one more for each this many nodes (costs.py). To
#: give one to each pod of a class that does costs as little as to say why it waits.
_COMPARING: Final = 80
_NODES_PER_OPERATION: Final = 10


def for_share(attempts: Attempts, pod: PodRecord, verdict: Verdict) -> Placement | Verdict | HeldBack:
    """A place for a share alone that fits nowhere; its verdict if it gets none."""
    if verdict.code is not Code.NO_NODE_FITS or not _brings_node(attempts, pod):
        return verdict
    return place(attempts, pod)


def place(attempts: Attempts, pod: PodRecord) -> Placement | HeldBack:
    """Place a pod on a node of its own, and charge it to its queue, if that takes it."""
    use = queue_use.asked(attempts.snapshot, [pod])
    refused = attempts.accounts.refusal(use)
    if refused is not None:
        return HeldBack(refused, use)
    attempts.accounts.charge(use)
    return Placement(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, rv=pod.rv, node=SUPPOSED)


def in_whole_devices(cls: PodClass, devices: int) -> Demand:
    """What a pod takes if it gets whole devices in the place of its shares."""
    return msgspec.structs.replace(cls.demand, gpus=cls.demand.gpus + devices)


def _brings_node(attempts: Attempts, pod: PodRecord) -> bool:
    """Whether no node has as many whole GPUs free as a class has shares, when it first fits nowhere."""
    cls = pod.cls
    if not cls.request.is_shared:
        return False
    known = attempts.brings_node.get(cls)
    if known is None:
        whole = PodClass(
            demand=in_whole_devices(cls, len(cls.request.shared)),
            constraints=cls.constraints,
            rules=cls.rules,
            avoids=cls.avoids,
            taken_by=cls.taken_by,
        )
        nodes = len(attempts.snapshot.ledger.row_of)
        attempts.allowance.spend(pod.namespace, _COMPARING + nodes // _NODES_PER_OPERATION)
        known = attempts.brings_node[cls] = attempts.placer.ranking(whole).best() is None
    return known

"""How much is kept of what an object says, in bytes: the API server takes 1.5 MiB of anything, from anybody.

A pod with more labels than are kept has none here (``PodRecord.are_labels_cut``): what reads them goes by the doubt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from sys import intern
from typing import Final

import msgspec

from scheduler.core.model.pod_class import ANYWHERE, Demand, PodClass
from scheduler.core.model.settings import NodePool
from wire.core import Pod, Taint

#: The most labels of a pod that are kept, and the most bytes in all of them (keys and values).
MOST_LABELS: Final = 256
MOST_LABEL_BYTES: Final = 16_384
#: The most volumes of a pod, and names of resources that no node may offer, that are kept.
MOST_VOLUMES: Final = 256
MOST_RESOURCES: Final = 100
#: The most bytes of all that a pod which waits asks of its place.
MOST_BYTES: Final = 32_768
#: The same of all places of its record: those that an administrator's settings make have names of labels each.
MOST_BYTES_OF_PLACES: Final = 131_072
#: The most labels, taints and resources of a node, and the most bytes in all of their names and values.
_MOST_OF_NODE: Final = 1_000
_MOST_NODE_BYTES: Final = 65_536
#: The most subgroups of a PodGroup.
MOST_SUBGROUPS: Final = 1_024
#: No name in Kubernetes is longer, and no key of a label.
LONGEST_NAME: Final = 317
#: Resources of NVIDIA's device plugin.
_OF_GPUS: Final = "nvidia.com/"
_encode: Final = msgspec.msgpack.Encoder(enc_hook=repr).encode
_NO_LABELS: Final[dict[str, str]] = {}


def are_too_many(labels: Mapping[str, str]) -> bool:
    """Whether labels are more than are kept of a pod."""
    if len(labels) > MOST_LABELS:
        return True
    # Keys and values are ASCII at the API server; other text counts by its characters.
    return sum(map(len, labels)) + sum(map(len, labels.values())) > MOST_LABEL_BYTES


def are_too_many_of_node(labels: Mapping[str, str], taints: Collection[Taint], resources: Collection[str]) -> bool:
    """Whether a node has more than is kept of one: no machine has so much, and a kubelet that was broken into may."""
    if len(labels) + len(taints) + len(resources) > _MOST_OF_NODE:
        return True
    texts = (*labels, *labels.values(), *resources, *(text for one in taints for text in (one.key, one.value or "")))
    return sum(map(len, texts)) > _MOST_NODE_BYTES


def excess(pod: Pod) -> str:
    """Name the limit of what is kept that a pod exceeds; "" if it keeps all limits."""
    if are_too_many(pod.metadata.labels or {}):
        return f"more than {MOST_LABELS} labels or {MOST_LABEL_BYTES} bytes of them"
    return f"more than {MOST_VOLUMES} volumes" if len(pod.spec.volumes or ()) > MOST_VOLUMES else ""


def excess_of_class(cls: PodClass) -> str:
    """Name the limit of what is kept that a class exceeds; "" if it keeps all limits."""
    if cls.constraints is ANYWHERE and not (cls.rules or cls.prefers or cls.places or cls.uuids or cls.not_uuids):
        return ""
    if len(_encode((cls.constraints, cls.rules, cls.prefers, cls.alternatives, cls.uuids, cls.not_uuids))) > MOST_BYTES:
        return f"the pod has more than {MOST_BYTES} bytes of constraints, preferences and names of GPUs"
    if cls.places and len(_encode(cls.places)) > MOST_BYTES_OF_PLACES:
        return f"the pod's record has more than {MOST_BYTES_OF_PLACES} bytes of places"
    return ""


def kept_labels(labels: Mapping[str, str], pool: NodePool | None = None) -> dict[str, str]:
    """Labels as a record keeps them, each text once in the process; if they are too many, that of its pool alone."""
    if are_too_many(labels):
        return {pool.key: labels[pool.key]} if pool is not None and pool.key in labels else _NO_LABELS
    return {intern(key): intern(value) for key, value in labels.items()}


def first_resources(demand: Demand) -> Demand:
    """A demand with ``MOST_RESOURCES`` names of resources at most, those first that GPUs are given out as."""
    if len(demand.extended) <= MOST_RESOURCES:
        return demand
    first = sorted(demand.extended, key=lambda each: (not each[0].startswith(_OF_GPUS), each[0]))[:MOST_RESOURCES]
    return msgspec.structs.replace(demand, extended=tuple(sorted(first)))


def resources_in_use(demand: Demand, offered: Collection[str]) -> Demand:
    """What a placed pod uses. Of more than ``MOST_RESOURCES`` names only those that nodes offer are kept.

    A kubelet ignores the resources that its node does not offer when it takes the pod.
    """
    if len(demand.extended) <= MOST_RESOURCES:
        return demand
    known = frozenset(offered)
    return msgspec.structs.replace(demand, extended=tuple([each for each in demand.extended if each[0] in known]))


def name(text: str) -> str:
    """A name, UID or word of an object, once in the process. One that is too long becomes its digest.

    Equal texts stay equal, different ones different, and no object has a name of this length.
    """
    return intern(text if len(text) <= LONGEST_NAME else f"{text[:32]}...{sha256(text.encode()).hexdigest()}")

"""What a pod asks of the pods around it: affinity, anti-affinity, spread, ports of the host, disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from scheduler.core.model.pod_class import AntiTerm, Requirement


class HostPort(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A port of the host. ``address`` "": of each of its addresses."""

    protocol: str
    port: int
    address: str = ""


class InlineDisk(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A disk that a pod names in its own volumes: pods on a node share it only if each of them reads it only.

    ``name``: what tells disks of one ``type`` (field of core/v1 VolumeSource) apart. An image that several Ceph
    monitors offer is one disk for each of them.
    """

    type: str
    name: tuple[str, ...]
    is_read_only: bool = False


class Spread(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """A spread constraint that has to hold (core/v1 TopologySpreadConstraint, DoNotSchedule).

    ``selector`` as in ``AntiTerm``, with the pod's own values of ``matchLabelKeys``. ``honors_affinity``: only nodes
    count that the pod's selector and node affinity admit; ``honors_taints``: only those whose taints it tolerates.
    """

    key: str
    most_skew: int
    selector: tuple[Requirement, ...] | None
    fewest_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PodRules(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """All that a pod asks of pods around it, a part of its class.

    ``labels``: its own labels, as far as a selector of its own may look at them: whether it takes itself matters.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[AntiTerm, ...] = ()
    anti_affinity: tuple[AntiTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[HostPort, ...] = ()
    disks: tuple[InlineDisk, ...] = ()

    @property
    def may_open(self) -> bool:
        """Whether one more pod somewhere can let it in on a node that was out."""
        return bool(self.affinity or self.spread)

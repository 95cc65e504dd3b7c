"""A tenant's pod read as a value: what the protocol needs to know of it, from a cache or from a quorum read."""

from __future__ import annotations

from sys import intern
from typing import Final

import msgspec

from gpu import bound_pod, container_devices
from gpu import grant as grants
from gpu.attempts import fences
from gpu.container_devices import Pin
from gpu.dialects import nvfractions
from gpu.dialects.settings import DialectSettings
from gpu.grant import Grant, has_ended
from gpu.limits import Cap, MemoryCaps, caps
from gpu.request import NO_GPU, GpuRequest
from gpu.translate.asked import PLAIN, alternative, asked_when_bound, recorded, taken, unrecorded
from gpu.translation import Refusal, Translation
from wire import names
from wire.core import Pod

#: What no dialect writes anything back for.
_UNRECORDED: Final = Translation(dialect=PLAIN, request=NO_GPU)
#: One character more than the name of an object has: a longer prefix makes none either.
_LONGEST_PREFIX: Final = 254


class PodView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``groups`` are the ids that its labels name.

    ``fenced`` is the attempt that was withdrawn last ("" if none), ``fenced_before`` those withdrawn before it.
    ``request`` is what it asks now; None when that can't be read (then it is not bound). ``recorded`` is all that its
    record says, None without one.
    ``config_maps`` is the prefix of KAI's ConfigMaps for pods whose env reads them, "" for all others.
    """

    uid: str
    namespace: str
    name: str
    rv: str
    node: str = ""
    scheduler: str = ""
    ended: bool = False
    deleting: bool = False
    gated: bool = False
    grace_s: int = 30
    groups: tuple[str, ...] = ()
    grant: Grant | None = None
    fenced: str = ""
    fenced_before: tuple[str, ...] = ()
    request: GpuRequest | None = NO_GPU
    recorded: Translation | None = None
    config_maps: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether it names a node."""
        return bool(self.node)

    @property
    def held_groups(self) -> frozenset[str]:
        """Groups that its labels or its grant name: KAI's pods have labels only."""
        granted = (device.group for device in self.grant.devices) if self.grant else ()
        return frozenset((*self.groups, *granted))

    def holds(self, group: str) -> bool:
        """Whether its labels or its grant name a group: ``group in held_groups``, without making that set."""
        if group in self.groups:
            return True
        return self.grant is not None and any(device.group == group for device in self.grant.devices)

    def asks(self, number: int) -> GpuRequest | None:
        """What it asks, by the number of its alternatives: 0 is ``request``. None if there is no such one."""
        if number == 0:
            return self.request
        return alternative(self.recorded, number) if self.recorded is not None else None

    def taken(self, number: int) -> Translation | None:
        """All of what it asks, with the request of this number. None if there is no such one."""
        if self.recorded is not None:
            return taken(self.recorded, number)
        request = self.asks(number)
        return None if request is None else msgspec.structs.replace(_UNRECORDED, request=request)

    def caps(self, number: int, which: MemoryCaps) -> tuple[Cap, ...]:
        """Memory caps of the devices of the request of this number; empty where none is to be written."""
        return () if which is MemoryCaps.NONE else caps(self.taken(number), which)

    def names_devices(self, number: int) -> bool:
        """Whether the request of this number names devices by index or UUID."""
        taken = self.taken(number)
        return taken is not None and not all(pin.is_any for pin in container_devices.pins(taken))

    def pin(self, number: int, device: int) -> Pin:
        """What the request of this number says of one of its shared devices."""
        taken = self.taken(number)
        found = container_devices.pins(taken) if taken is not None else ()
        return found[device] if device < len(found) else container_devices.ANY_DEVICE

    def was_fenced_for(self, attempt: str) -> bool:
        """Whether this attempt was withdrawn, last or before another one."""
        return attempt == self.fenced or attempt in self.fenced_before

    def was_bound_by(self, attempt: str) -> bool:
        """Whether the Binding of this attempt is the one that landed."""
        return self.is_bound and self.grant is not None and self.grant.attempt == attempt


def view(pod: Pod) -> PodView:
    """Read a pod."""
    annotations = pod.metadata.annotations or {}
    request, translation = _asked(pod)
    fenced = fences(annotations)
    return PodView(
        uid=pod.metadata.uid,
        # What many pods share is kept once.
        namespace=intern(pod.metadata.namespace),
        name=pod.metadata.name,
        rv=pod.metadata.resource_version,
        node=intern(pod.spec.node_name),
        scheduler=intern(pod.spec.scheduler_name),
        ended=has_ended(pod.status),
        deleting=pod.metadata.deletion_timestamp is not None,
        gated=bool(pod.spec.scheduling_gates),
        grace_s=_grace_s(pod),
        groups=grants.labelled_groups(pod.metadata.labels),
        grant=grants.read(annotations),
        fenced=fenced[0] if fenced else "",
        fenced_before=fenced[1:],
        request=request,
        recorded=translation,
        config_maps=annotations.get(names.SHARED_GPU_CONFIGMAP, "")[:_LONGEST_PREFIX],
    )


def _asked(pod: Pod) -> tuple[GpuRequest | None, Translation | None]:
    """What it asks, and its record. Whole devices are kubelet's to hand out: the binder need not read those.

    What a claim gives is no matter of the sharing protocol.
    """
    annotations = pod.metadata.annotations or {}
    if bound_pod.read_claimed(pod) is not None:
        return NO_GPU, None
    if (own := recorded(pod)) is not None:
        return (None, None) if isinstance(own, Refusal) else (own.request, own)
    if names.GPU_FRACTION not in annotations and names.GPU_MEMORY not in annotations:
        return _asked_of_kai(pod) if pod.spec.node_name else (NO_GPU, None)
    found = unrecorded(pod)
    return (None if isinstance(found, Refusal) else found.request), None


def _asked_of_kai(pod: Pod) -> tuple[GpuRequest | None, Translation | None]:
    """What a bound pod without a record asked in KAI's newer words, and that as if it were recorded, for its mode."""
    if not nvfractions.speaks(pod, DialectSettings()):
        return NO_GPU, None
    found = asked_when_bound(pod)
    return (None, None) if isinstance(found, Refusal) else (found.request, found)


def _grace_s(pod: Pod) -> int:
    from_deletion = pod.metadata.deletion_grace_period_seconds
    from_spec = pod.spec.termination_grace_period_seconds
    return max(from_deletion or 0, from_spec if from_spec is not None else 30)

"""An attempt: a BindRequest read as a value, or a direct attempt of the scheduler.

The identity of a BindRequest's attempt is its own UID, and the pod is named by UID (``ownerReferences[0].uid``), so a
request can never be carried out for a pod of the same name that was made later (invariants.md, R1, R9). A direct
attempt has no BindRequest; its identity is a fresh UUID.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpu import bind_request, grant
from gpu.bind_request import Foreign, PlannedDevice
from gpu.book import Entry, Tenant
from gpu.grant import BoundMetadata, Charged
from gpu.limits import NO_CAP, Cap
from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from sharing.pods import PodView
from wire import names
from wire.crds.bindrequest import BindRequest


class Attempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Put this pod on this node with these devices. ``rv`` is the pod's resourceVersion that was decided on.

    ``plan`` and ``members``: the gang's plan and how many attempts belong to it; "" and 1 for a pod alone.
    ``alternative``: which of the pod's requests the devices are for.
    ``is_direct``: the scheduler's own, which has no BindRequest and takes only devices that are verified already.
    """

    id: str
    namespace: str
    name: str
    pod_uid: str
    pod_name: str
    node: str
    rv: str
    devices: tuple[PlannedDevice, ...] = ()
    plan: str = ""
    members: int = 1
    alternative: int = 0
    #: What the pod counts for in its queue from the Binding on.
    charged: Charged | None = None
    is_direct: bool = False
    #: The node pool of the scheduler that ordered it, as its label says; "" for the one without a value.
    node_pool: str = ""

    @property
    def also_written(self) -> BoundMetadata:
        """The node pool that its pod is labelled with, as KAI's scheduler does, and its queue."""
        labels = {names.NODE_POOL_LABEL: self.node_pool} if self.node_pool else {}
        return BoundMetadata(labels, grant.render_charged(self.charged))

    @property
    def unit(self) -> str:
        """Key of the attempts that bind together."""
        return f"{self.namespace}/{self.plan}" if self.plan else self.id

    def is_done(self, pod: PodView) -> bool:
        """Whether this attempt's Binding is the one that landed.

        Without shares it asks for nothing but the node, and its Binding carries no mark: another writer that bound the
        pod there did its work.
        """
        return pod.was_bound_by(self.id) if self.devices else pod.node == self.node

    def tenant(self, group: str, rv: str, *, since: int = 0, grace_s: int = 30, caps: Sequence[Cap] = ()) -> Tenant:
        """The entry for this group's book at ``rv``. ``since``: when it joins (Unix seconds), for people.

        ``caps``: for each of the devices, or empty: none is written.
        """
        place = self.number_of(group)
        device = self.devices[place]
        pod = f"{self.namespace}/{self.pod_name}"
        cap = caps[place] if len(caps) == len(self.devices) else NO_CAP
        entry = Entry(
            device.nano, self.id, rv, since, pod, grace_s, device.mode, device.compute_percent, cap.mib, cap.nano
        )
        return Tenant(self.pod_uid, entry, resource=device.resource)

    def number_of(self, group: str) -> int:
        """Which of the devices is this group's."""
        return next(at for at, device in enumerate(self.devices) if device.group == group)

    def asks_same(self, pod: PodView) -> bool:
        """Whether a pod still asks what was decided on; one whose request can't be read does not."""
        request = pod.asks(self.alternative)
        if request is None or len(request.shared) != len(self.devices):
            return False
        return all(_is_same(ask, device) for ask, device in zip(request.shared, self.devices, strict=True))


def _is_same(ask: SharedAsk, device: PlannedDevice) -> bool:
    if ask.compute_percent != device.compute_percent:
        return False
    match ask:
        case FractionAsk(nano=nano):
            return nano == device.nano and not device.mem_mib
        case MemoryAsk(mem_mib=mem_mib):
            return mem_mib == device.mem_mib


def read(request: BindRequest) -> Attempt | Foreign:
    """Read a BindRequest; what is not complete and consistent is Foreign and is left alone."""
    ordered = bind_request.read(request)
    if isinstance(ordered, Foreign):
        return ordered
    handed = ordered.handover
    return Attempt(
        id=request.metadata.uid,
        namespace=request.metadata.namespace,
        name=request.metadata.name,
        pod_uid=ordered.pod_uid,
        pod_name=request.spec.pod_name,
        node=request.spec.selected_node,
        rv=handed.rv,
        devices=handed.devices,
        plan=handed.plan,
        members=handed.members,
        alternative=handed.alternative,
        charged=handed.charged,
        node_pool=(request.metadata.labels or {}).get(names.NODE_POOL_LABEL, ""),
    )

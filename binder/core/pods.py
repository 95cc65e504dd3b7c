"""A tenant's pod read as a value: what the protocol needs to know of it, from a cache or from a quorum read."""

from __future__ import annotations

from sys import intern

import msgspec

from gpu import grant as grants
from gpu.dialects import kai
from gpu.grant import Grant
from gpu.request import NO_GPU, GpuRequest
from wire import names
from wire.core import ContainerStatus, Pod, Toleration


class PodView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``groups`` are the ids that its labels name; ``fenced`` the attempt that was withdrawn last ("" if none).

    ``request`` is what it asks now; None when that can't be read (then it is not bound).
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
    request: GpuRequest | None = NO_GPU
    config_maps: str = ""
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether it names a node."""
        return bool(self.node)

    @property
    def held_groups(self) -> frozenset[str]:
        """Groups that its labels or its grant name: KAI's pods have labels only."""
        granted = (device.group for device in self.grant.devices) if self.grant else ()
        return frozenset((*self.groups, *granted))

    def was_bound_by(self, attempt: str) -> bool:
        """Whether the Binding of this attempt is the one that landed."""
        return self.is_bound and self.grant is not None and self.grant.attempt == attempt


def view(pod: Pod) -> PodView:
    """Read a pod."""
    annotations = pod.metadata.annotations or {}
    return PodView(
        uid=pod.metadata.uid,
        # What many pods share is kept once.
        namespace=intern(pod.metadata.namespace),
        name=pod.metadata.name,
        rv=pod.metadata.resource_version,
        node=intern(pod.spec.node_name),
        scheduler=intern(pod.spec.scheduler_name),
        ended=has_ended(pod),
        deleting=pod.metadata.deletion_timestamp is not None,
        gated=bool(pod.spec.scheduling_gates),
        grace_s=_grace_s(pod),
        groups=grants.labelled_groups(pod.metadata.labels),
        grant=grants.read(annotations),
        fenced=annotations.get(names.FENCED, ""),
        request=_request(pod),
        config_maps=annotations.get(names.SHARED_GPU_CONFIGMAP, ""),
        tolerations=tuple(pod.spec.tolerations or ()),
    )


def _request(pod: Pod) -> GpuRequest | None:
    annotations = pod.metadata.annotations or {}
    if names.GPU_FRACTION not in annotations and names.GPU_MEMORY not in annotations:
        return NO_GPU  # whole devices are kubelet's to hand out: the binder need not read them
    request = kai.translate(pod)
    return request if isinstance(request, GpuRequest) else None


def has_ended(pod: Pod) -> bool:
    """Whether none of its containers runs or will run again (protocol.md, step 5: *ended*).

    A terminal phase says so, unless a container status contradicts it (a pod is marked Failed while it still ends).
    While a pod is being deleted its phase may stay Running: then all known containers must have terminated.
    """
    statuses = [*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())]
    if any(_is_running(status) for status in statuses):
        return False
    if pod.status.phase in {names.SUCCEEDED, names.FAILED}:
        return True
    main = pod.status.container_statuses or ()
    all_known = len(main) >= len(pod.spec.containers) > 0
    all_terminated = all_known and all(s.state is not None and s.state.terminated is not None for s in main)
    return pod.metadata.deletion_timestamp is not None and all_terminated


def _is_running(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


def _grace_s(pod: Pod) -> int:
    from_deletion = pod.metadata.deletion_grace_period_seconds
    from_spec = pod.spec.termination_grace_period_seconds
    return max(from_deletion or 0, from_spec if from_spec is not None else 30)

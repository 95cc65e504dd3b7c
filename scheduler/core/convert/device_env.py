"""How containers read which devices they were given: what a pod's spec says about it.

A container with a share whose env reads nothing would see no device, or every device of its node: such a pod is never
bound (docs/design/protocol.md, Hand-over to the container).
"""

from __future__ import annotations

from gpu.request import ContainerKind, ContainerRef, GpuRequest
from wire import names
from wire.core import Container, EnvVar, Pod


class Source:
    """How a container reads which devices it was given."""

    ANNOTATION = "annotation"
    CONFIG_MAP = "config-map"
    NONE = "none"


def hand_over(pod: Pod, request: GpuRequest) -> set[str]:
    """How the containers with a share read their devices: the ways seen; empty when there are no shares."""
    if not request.is_shared:
        return set()
    return {_source(pod, container) for container in request.devices()}


def taken_back(pod: Pod, request: GpuRequest) -> str:
    """Say which container reads a ConfigMap though its ask is gone; "" if none does.

    It would wait for ever for one that nobody writes, or see the devices of an attempt that failed.
    """
    if names.SHARED_GPU_CONFIGMAP not in (pod.metadata.annotations or {}):
        return ""
    shared = {container.key for container in request.devices()}
    listed = ((ContainerKind.INIT, pod.spec.init_containers or ()), (ContainerKind.REGULAR, pod.spec.containers))
    for kind, containers in listed:
        for index, container in enumerate(containers):
            ref = ContainerRef(kind, index)
            if ref.key not in shared and _source(pod, ref) == Source.CONFIG_MAP:
                return f"container {container.name} shares no GPU any more, but reads which: create the pod again"
    return ""


def _source(pod: Pod, ref: ContainerRef) -> str:
    variable = _variable(_container(pod, ref))
    source = variable.value_from if variable else None
    if source is None:
        return Source.NONE
    if source.field_ref is not None:
        wanted = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}{ref.key}']"
        return Source.ANNOTATION if source.field_ref.field_path == wanted else Source.NONE
    prefix = (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP, "")
    by_map = source.config_map_key_ref
    return Source.CONFIG_MAP if by_map and prefix and by_map.name.startswith(prefix) else Source.NONE


def _container(pod: Pod, ref: ContainerRef) -> Container | None:
    containers = pod.spec.init_containers or [] if ref.kind is ContainerKind.INIT else pod.spec.containers
    return containers[ref.index] if ref.index < len(containers) else None


def _variable(container: Container | None) -> EnvVar | None:
    """The entry that counts: kubelet lets the last one of a name win."""
    found = [v for v in (container.env if container else None) or () if v.name == names.ENV_VISIBLE_DEVICES]
    return found[-1] if found else None

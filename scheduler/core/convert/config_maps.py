"""ConfigMaps, of which names are read, and those that a pod names as required, as KAI judges it.

Secrets are not judged, as with KAI: who may list their names may read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from sys import intern
from typing import Final, Protocol

import msgspec

from scheduler.core.convert import bounds
from wire import names
from wire.core import Container, Named, Pod, Volume

#: Namespace and name.
Key = tuple[str, str]
#: Kubernetes makes it in each namespace, and has nearly all pods name it.
_ROOT_CA: Final = "kube-root-ca.crt"


class ConfigMapRecord(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap that is there."""

    namespace: str
    name: str

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.namespace, self.name


class _Reference(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def optional(self) -> bool | None: ...


def config_map_record(written: Named) -> ConfigMapRecord:
    """Read a ConfigMap."""
    return ConfigMapRecord(intern(written.metadata.namespace), written.metadata.name)


def required(pod: Pod) -> tuple[str, ...]:
    """Names of ConfigMaps without which a kubelet does not start a pod; without those that the binder makes for it."""
    ours = (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP, "")
    found = (each.name for each in _references(pod) if each.name and not each.optional)
    wanted = (name for name in found if name != _ROOT_CA and not (ours and name.startswith(ours)))
    return tuple(dict.fromkeys(map(bounds.name, islice(wanted, bounds.MOST_VOLUMES))))


def _references(pod: Pod) -> Iterator[_Reference]:
    for volume in pod.spec.volumes or ():
        yield from _of_volume(volume)
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        yield from _of_container(container)


def _of_volume(volume: Volume) -> Iterator[_Reference]:
    if volume.config_map is not None:
        yield volume.config_map
    for source in (volume.projected.sources if volume.projected is not None else None) or ():
        if source.config_map is not None:
            yield source.config_map


def _of_container(container: Container) -> Iterator[_Reference]:
    for whole in container.env_from or ():
        if whole.config_map_ref is not None:
            yield whole.config_map_ref
    for variable in container.env or ():
        source = variable.value_from
        if source is not None and source.config_map_key_ref is not None:
            yield source.config_map_key_ref

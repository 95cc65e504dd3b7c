"""What a container with a share is given to learn its devices: env, and in KAI's way ConfigMaps.

What apps of the pod's own dialect read is known at binding as well, and comes by annotations in either way.

Env entries of ours stand first in the list: an explicit entry wins over ``envFrom``, same-named entries of the user
are taken out, and an entry that refers to one of ours as ``$(NAME)`` is expanded by the kubelet only when ours comes
before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from admission.raw_pod import Raw, env_of, rewritten, walk, with_list
from gpu import container_devices
from gpu.limits import env_key
from gpu.request import ContainerRef
from wire import names

#: In KAI's order; the second is an alias from older days.
OUR_ENV: Final = (names.ENV_VISIBLE_DEVICES, names.ENV_NUM_OF_GPUS, names.ENV_GPU_PORTION)

_CAPABILITIES: Final = re.compile(r".*-shared-gpu-i?[0-9]+")


def by_annotations(pod: Raw, targets: Collection[str]) -> Raw:
    """Let the env of the containers of these keys read the annotations that the Binding will write."""

    def change(ref: ContainerRef, container: Raw) -> Raw:
        if ref.key not in targets:
            return container
        devices = names.VISIBLE_DEVICES_PREFIX + ref.key
        keys = (devices, names.GPU_PORTION_ANNOTATION, names.GPU_PORTION_ANNOTATION)
        return with_env_first(container, [_from_annotation(*pair) for pair in zip(OUR_ENV, keys, strict=True)])

    return rewritten(pod, change)


def by_origin(pod: Raw, variables: Mapping[str, Sequence[str]]) -> Raw:
    """Let containers read the variables of the pod's dialect, by container key, as the Binding will say them."""

    def change(ref: ContainerRef, container: Raw) -> Raw:
        entries = [_from_annotation(name, env_key(ref.key, name)) for name in variables.get(ref.key, ())]
        return with_env_first(container, entries) if entries else container

    return rewritten(pod, change) if variables else pod


def without_variables(pod: Raw, targets: Collection[str], variables: Collection[str]) -> Raw:
    """Take these variables out of the containers of these keys, also values of the pod's own."""

    def change(ref: ContainerRef, container: Raw) -> Raw:
        if ref.key not in targets:
            return container
        return with_list(container, "env", [entry for entry in env_of(container) if entry.get("name") not in variables])

    return rewritten(pod, change)


def is_ready(container: Raw, key: str) -> bool:
    """Whether the container of this key reads its devices from what a Binding writes, in either way."""
    entries = [entry for entry in env_of(container) if entry.get("name") == names.ENV_VISIBLE_DEVICES]
    # Kubelet lets the last one of a name win.
    source = (entries[-1].get("valueFrom") or {}) if entries else {}
    path = (source.get("fieldRef") or {}).get("fieldPath")
    return path == _path(names.VISIBLE_DEVICES_PREFIX + key) or bool(source.get("configMapKeyRef"))


def _path(key: str) -> str:
    return f"metadata.annotations['{key}']"


def _from_annotation(name: str, key: str) -> Raw:
    field = {"apiVersion": "v1", "fieldPath": _path(key)}
    return {"name": name, "valueFrom": {"fieldRef": field}}


def by_config_maps(pod: Raw, targets: Collection[str], prefix: str) -> Raw:
    """Let the env of the containers of these keys read KAI's ConfigMaps of that prefix (kai-contract 1.3, steps 2-5).

    The volume is never mounted: it keeps the kubelet from starting the pod before the ConfigMap is there.
    """

    def change(ref: ContainerRef, container: Raw) -> Raw:
        if ref.key not in targets:
            return container
        name = container_devices.capabilities_name(prefix, ref)
        entries = [{"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}} for key in OUR_ENV]
        direct = {"configMapRef": {"name": container_devices.direct_env_name(name), "optional": False}}
        sources = [*(container.get("envFrom") or ()), direct]
        return with_list(with_env_first(container, entries), "envFrom", sources)

    maps = [container_devices.capabilities_name(prefix, ref) for ref, _ in walk(pod) if ref.key in targets]
    volumes: list[Raw] = [{"name": container_devices.volume_name(name), "configMap": {"name": name}} for name in maps]
    ours = {volume["name"] for volume in volumes}
    kept = [volume for volume in pod["spec"].get("volumes") or () if volume.get("name") not in ours]
    changed = rewritten(pod, change)
    annotations = {**(pod["metadata"].get("annotations") or {}), names.SHARED_GPU_CONFIGMAP: prefix}
    return {
        **changed,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": with_list(changed["spec"], "volumes", [*kept, *volumes]),
    }


def with_env_first(container: Raw, entries: list[dict[str, Any]]) -> Raw:
    """Put the entries before all others of the container and take out others of their names."""
    taken = {entry["name"] for entry in entries}
    rest = [entry for entry in env_of(container) if entry.get("name") not in taken]
    return with_list(container, "env", [*entries, *rest])


def without_leftovers(pod: Raw) -> Raw:
    """Take out what an earlier admission left in a copied spec, by us or by KAI, in either way.

    Left in, it would hand over nothing and keep the new pod waiting for ConfigMaps that nobody makes.
    """
    stale = _stale_maps(pod)
    direct = {container_devices.direct_env_name(name) for name in stale}

    def change(_: ContainerRef, container: Raw) -> Raw:
        env = [entry for entry in env_of(container) if not _is_leftover(entry, stale)]
        sources = [
            source
            for source in container.get("envFrom") or ()
            if (source.get("configMapRef") or {}).get("name") not in direct
        ]
        return with_list(with_list(container, "env", env), "envFrom", sources)

    changed = rewritten(pod, change)
    mounted = {mount.get("name") for _, container in walk(pod) for mount in container.get("volumeMounts") or ()}
    volumes = [
        volume
        for volume in changed["spec"].get("volumes") or ()
        if volume.get("name") in mounted or not _is_waiting_volume(volume, stale)
    ]
    return {**changed, "spec": with_list(changed["spec"], "volumes", volumes)}


def _stale_maps(pod: Raw) -> set[str]:
    """Names of capabilities ConfigMaps that the spec refers to, by its annotation or by its env."""
    prefix = (pod["metadata"].get("annotations") or {}).get(names.SHARED_GPU_CONFIGMAP)
    found = {container_devices.capabilities_name(prefix, ref) for ref, _ in walk(pod)} if prefix else set()
    for _, container in walk(pod):
        for entry in env_of(container):
            source = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
            if entry.get("name") in OUR_ENV and _CAPABILITIES.fullmatch(source.get("name") or ""):
                found.add(source["name"])
    return found


def _is_leftover(entry: Raw, stale: Collection[str]) -> bool:
    source = entry.get("valueFrom") or {}
    path = (source.get("fieldRef") or {}).get("fieldPath") or ""
    if path.startswith(f"metadata.annotations['{names.ENV_PREFIX}"):
        return True
    if entry.get("name") not in OUR_ENV:
        return False
    return path.startswith(f"metadata.annotations['{names.MOORAGE_PREFIX}") or (
        (source.get("configMapKeyRef") or {}).get("name") in stale
    )


def _is_waiting_volume(volume: Raw, stale: Collection[str]) -> bool:
    name = (volume.get("configMap") or {}).get("name") or ""
    return name in stale and volume.get("name") == container_devices.volume_name(name)

"""What a container may learn of its devices: env and KAI's ConfigMaps where it has a share, nothing where it has none.

A guard of NVIDIA_VISIBLE_DEVICES keeps a pod that was given no shared device from choosing one (invariant S3). Under
the nvidia container runtime this variable decides which devices a container sees. Images built for CUDA set it to
``all``, and a user's entry wins over the device plugin's. docs/security.md lists the ways to a device that admission
can't see.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from admission.raw_pod import Raw, asks_for_gpu, env_of, rewritten, walk, with_list
from admission.settings import Guard
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
    """Let containers read the variables of the pod's dialect, by container key, as the Binding will say them.

    The values are known at binding, so they come by annotations whichever hand-over is set.
    """

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
    """Put the entries before all others of the container and take out others of their names.

    An explicit entry wins over ``envFrom``. The kubelet expands ``$(NAME)`` in a user's entry only where ours comes
    before.
    """
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


_HARMLESS: Final = frozenset((names.VISIBLE_DEVICES_NONE, "none"))
_VOID: Final = {"name": names.ENV_VISIBLE_DEVICES, "value": names.VISIBLE_DEVICES_NONE}


def guarded(pod: Raw, *, shared: Collection[str], guard: Guard, renamed: Collection[str] = ()) -> Raw:
    """Return the pod with every container guarded whose key is not in ``shared``: those get their devices from us.

    ``renamed``: resources of NVIDIA's device plugin that have other names than its own.

    A container that requests GPUs of NVIDIA's device plugin keeps the variable that the plugin sets. Only a node with
    those GPUs has the plugin, so such a container needs a scheduler to place it there.
    """
    return rewritten(
        pod, lambda ref, container: container if ref.key in shared else _guarded(container, guard, renamed)
    )


def guarded_ephemeral(pod: Raw, *, known: Collection[str], guard: Guard) -> Raw:
    """Return the pod with its new ephemeral containers guarded: those whose name is not ``known``."""
    before = pod["spec"].get("ephemeralContainers") or []
    after = [c if c.get("name") in known else _guarded(c, guard, ()) for c in before]
    return {**pod, "spec": with_list(pod["spec"], "ephemeralContainers", after)}


def forbidden(pod: Raw, *, shared: Collection[str], guard: Guard, renamed: Collection[str] = ()) -> str | None:
    """Say what a container outside ``shared`` sets that it must not, in KAI's words; None if none does.

    KAI's counterpart is its opt-in ``deviceaccess`` (kai-contract 1.3); this guard is on by default. Only ``reject``
    refuses ``envFrom``; ``inject`` lets it be.
    """
    containers = [container for ref, container in walk(pod) if ref.key not in shared]
    served = [container for container in containers if asks_for_gpu(container, renamed)]
    found = (_forbidden(container) for container in containers)
    unseen = (_unseen(container) for container in served if guard is Guard.REJECT)
    past = (_past_schedulers(container, pod["spec"].get("nodeName")) for container in served)
    return _first((*found, *unseen, *past))


def forbidden_ephemeral(pod: Raw, *, known: Collection[str]) -> str | None:
    """Say what a new ephemeral container sets that it must not; None if none does."""
    containers = pod["spec"].get("ephemeralContainers") or ()
    return _first(_forbidden(container) for container in containers if container.get("name") not in known)


def _guarded(container: Raw, guard: Guard, renamed: Collection[str]) -> Raw:
    entries = _entries(container)
    if guard is Guard.OFF or (entries and (guard is Guard.REJECT or _forbidden(container) is None)):
        return container
    if asks_for_gpu(container, renamed):
        kept = [entry for entry in env_of(container) if entry.get("name") != names.ENV_VISIBLE_DEVICES]
        return with_list(container, "env", kept)
    return with_env_first(container, [_VOID])


def _entries(container: Raw) -> list[Raw]:
    return [entry for entry in env_of(container) if entry.get("name") == names.ENV_VISIBLE_DEVICES]


def _forbidden(container: Raw) -> str | None:
    for entry in _entries(container):
        subject = (
            f"container {container.get('name', '')} has an environment variable {names.ENV_VISIBLE_DEVICES} defined"
        )
        if entry.get("valueFrom"):
            return (
                f"{subject} with a valueFrom reference. "
                "This is forbidden due to possible conflicts with Nvidia's device plugin"
            )
        if entry.get("value", "") not in _HARMLESS:
            return (
                f"{subject} with a value of {entry.get('value', '')}. "
                "This is forbidden due to conflicts with Nvidia's device plugin. "
                "The only values that are allowed are 'void' or 'none'"
            )
    return None


def _unseen(container: Raw) -> str | None:
    """Say which ``envFrom`` could choose the devices of a container that gets whole GPUs.

    The objects that it names are not seen here. Elsewhere our explicit entry wins over them. A container with whole
    GPUs gets the variable from the device plugin, which comes first of all (kai-contract 13).
    """
    if _entries(container):
        return None
    for index, source in enumerate(container.get("envFrom") or ()):
        prefix = source.get("prefix") or ""
        if prefix != names.ENV_VISIBLE_DEVICES and names.ENV_VISIBLE_DEVICES.startswith(prefix):
            return (
                f"container {container.get('name', '')} gets GPUs and takes its environment from an object that could "
                f"set {names.ENV_VISIBLE_DEVICES} (envFrom[{index}].prefix is '{prefix}'; allowed: a prefix with "
                f"which no key gives {names.ENV_VISIBLE_DEVICES}, or single entries by env)"
            )
    return None


def _past_schedulers(container: Raw, node: str | None) -> str | None:
    """Say that a container asks for GPUs on a node that its pod brings along.

    No scheduler has looked whether the node has that resource. Where it has not (GPUs cut in another way, or handed out
    by claims), kubelet drops the ask, no plugin sets the variable, and the image's own ``all`` shows every device.
    """
    if not node:
        return None
    return (
        f"container {container.get('name', '')} asks for GPUs on a node that no scheduler chose "
        f"(spec.nodeName is '{node}'; allowed: none, where a container asks for GPUs)"
    )


def _first(texts: Iterable[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)

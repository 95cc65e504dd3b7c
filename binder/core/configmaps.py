"""KAI's two ConfigMaps (kai-contract 1.5), for pods whose env reads them.

Created once with their final content and immutable: nobody can move a container to another device by editing one
(contract 9.2.2), and there is no half-written state to read back through a cache (9.3.20).

Several attempts may want to write the same ConfigMap, and the container must see what the one that binds has written.
So each says at which version of the pod it binds: who binds at a newer one may replace it, for the older can't bind any
more; who binds at the same or an older one may not, for the writer may be bound already.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from gpu import container_devices as cdi_names
from gpu.container_devices import capabilities_name, direct_env_name
from gpu.grant import Grant, dealt, portion
from gpu.request import GpuRequest
from wire import names
from wire.core import ConfigMap
from wire.versions import is_older


class Standing(enum.Enum):
    """What a ConfigMap that is there already means to an attempt."""

    #: It says what the attempt would say, and nobody may change it.
    OURS = "ours"
    #: It was written for a pod that is another's.
    FOREIGN = "foreign"
    #: Its attempt can't bind any more: it may be replaced.
    OLDER = "older"
    #: Another attempt may bind the pod, or has bound it, with what it says.
    RIVAL = "rival"
    #: The pod has changed since, and is on its way by a newer attempt.
    NEWER = "newer"


def standing(there: ConfigMap, wanted: Mapping[str, Any]) -> Standing:
    """Judge a ConfigMap of the same name. One without a version was written by KAI, before us."""
    metadata = wanted["metadata"]
    owners = [owner.uid for owner in there.metadata.owner_references or ()]
    if owners != [owner["uid"] for owner in metadata["ownerReferences"]]:
        return Standing.FOREIGN
    written = (there.metadata.annotations or {}).get(names.POD_VERSION, "")
    ours = metadata["annotations"][names.POD_VERSION]
    if written == ours:
        is_same = (there.data or {}) == wanted["data"] and bool(there.immutable)
        return Standing.OURS if is_same else Standing.RIVAL
    return Standing.NEWER if is_older(ours, written) else Standing.OLDER


def manifests(
    *, prefix: str, pod_name: str, pod_uid: str, rv: str, grant: Grant, request: GpuRequest, cdi: bool = False
) -> list[dict[str, Any]]:
    """Return the ConfigMaps to create, two per container that asked for shares. ``rv``: what the Binding will name.

    ``cdi``: devices are named as CDI does. If that changes between two tries at one version, the second meets a rival
    (see above): it is withdrawn, which changes the pod, and the attempt after it replaces what the first one wrote.
    """
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid}
    metadata = {"annotations": {names.POD_VERSION: rv}, "ownerReferences": [owner]}
    built = []
    shared, places = request.shared, request.devices()
    for container, devices in dealt(grant, request):
        told = portion(devices[0], shared[places[container][0]])
        data = {
            names.ENV_VISIBLE_DEVICES: cdi_names.listed((device.uuid for device in devices), cdi=cdi),
            names.ENV_NUM_OF_GPUS: told,
            names.ENV_GPU_PORTION: told,
        }
        name = capabilities_name(prefix, container)
        built.append(_config_map({"name": name, **metadata}, data))
        built.append(_config_map({"name": direct_env_name(name), **metadata}, {}))
    return built


def _config_map(metadata: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "immutable": True}

"""KAI's two ConfigMaps (kai-contract 1.5), for pods whose env reads them.

Created once with their final content and immutable: nobody can move a container to another device by editing one
(contract 9.2.2), and there is no half-written state to read back through a cache (9.3.20).
"""

from __future__ import annotations

from typing import Any

from gpu.configmaps import capabilities_name, direct_env_name
from gpu.grant import Grant, dealt
from gpu.request import GpuRequest
from gpu.share import portion_text
from wire import names


def manifests(*, prefix: str, pod_name: str, pod_uid: str, grant: Grant, request: GpuRequest) -> list[dict[str, Any]]:
    """Return the ConfigMaps to create, two per container that asked for shares."""
    built = []
    for container, devices in dealt(grant, request):
        portion = portion_text(devices[0].nano)
        data = {
            names.ENV_VISIBLE_DEVICES: ",".join(device.uuid for device in devices),
            names.ENV_NUM_OF_GPUS: portion,
            names.ENV_GPU_PORTION: portion,
        }
        name = capabilities_name(prefix, container)
        built.append(_config_map(name, pod_name, pod_uid, data))
        built.append(_config_map(direct_env_name(name), pod_name, pod_uid, {}))
    return built


def _config_map(name: str, pod_name: str, pod_uid: str, data: dict[str, str]) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "data": data,
        "immutable": True,
    }

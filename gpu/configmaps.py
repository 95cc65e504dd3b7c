"""Names of the two ConfigMaps through which KAI hands devices to a container (kai-contract 1.3, 1.5).

The *capabilities* map holds the values that the container's env reads, the *direct env* map is normally empty. Both
names are made of a prefix that admission wrote into the pod's annotation ``runai/shared-gpu-configmap`` and of the
container's place; admission refers to them, the binder creates them.
"""

from __future__ import annotations

from gpu.request import ContainerKind, ContainerRef


def container_suffix(container: ContainerRef) -> str:
    """KAI's key of a container: ``0`` for the first regular one, ``i1`` for the second init container."""
    kind = "" if container.kind is ContainerKind.REGULAR else container.kind.value
    return f"{kind}{container.index}"


def capabilities_name(prefix: str, container: ContainerRef) -> str:
    """Name of the ConfigMap that the container's env entries read."""
    return f"{prefix}-{container_suffix(container)}"


def direct_env_name(capabilities: str) -> str:
    """Name of the ConfigMap that the container takes whole into its environment."""
    return f"{capabilities}-evar"


def volume_name(capabilities: str) -> str:
    """Name of the volume that delays the kubelet until the ConfigMap exists: a DNS label, so without dots."""
    return f"{capabilities}-vol".replace(".", "-")

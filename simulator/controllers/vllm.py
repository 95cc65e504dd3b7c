"""VLLMRuntime of vLLM's production stack: the pods of its Deployment (vllm-project/production-stack: its operator)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.controllers.pods import (
    Charge,
    Json,
    Placed,
    child,
    identity,
    mapping,
    number,
    placed,
    read_template,
    stored,
)
from wire import names

_CONFIG: Final = "spec.deploymentConfig"
_PLAIN: Final = ("cpu", "memory")
#: What a sidecar requests that says nothing.
_SIDECAR: Final = {"cpu": "0.5", "memory": "128Mi"}


def expand(runtime: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all replicas. Raises Malformed."""
    name, config = runtime["metadata"]["name"], child(child(runtime, "spec"), "deploymentConfig")
    containers = [{"name": "vllm", "image": "vllm", "resources": _resources(child(config, "resources"))}]
    sidecar = child(config, "sidecarConfig")
    if child(sidecar, "enabled") is True:
        called = child(sidecar, "name") or "sidecar"
        asked = _resources({**_SIDECAR, **mapping(sidecar, "resources", f"{_CONFIG}.sidecarConfig")})
        containers.append({"name": called, "image": "sidecar", "resources": asked})
    spec: dict[str, Any] = {"containers": containers}
    if tolerations := child(config, "toleration"):
        spec["tolerations"] = tolerations
    if terms := child(config, "nodeSelectorTerms"):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    labels = {"app": name, **mapping(runtime["metadata"], "labels", "metadata")}
    template = read_template({"metadata": {"labels": labels}, "spec": spec}, _CONFIG)
    replicas = number(config, "replicas", _CONFIG, 1)
    charge(replicas, f"{_CONFIG}.replicas", template)
    deployment = stored("apps/v1", "Deployment", name, above=runtime, like={"metadata": {}})
    made_hash = identity(template.raw)
    owners = [stored("apps/v1", "ReplicaSet", f"{name}-{made_hash}", above=deployment), deployment, runtime]
    for _ in range(replicas):
        yield placed(owners, template, generate_name=f"{name}-{made_hash}-", labels={"pod-template-hash": made_hash})


def _resources(written: object) -> dict[str, Any]:
    """Return requests and limits, which are the same; GPUs are of NVIDIA where no type is named."""
    found = {name: value for name in _PLAIN if (value := child(written, name))}
    if gpus := child(written, "gpu"):
        found[str(child(written, "gpuType") or names.GPU_RESOURCE)] = gpus
    return {"limits": found, "requests": found}

"""The SparkApplication of the Spark operator (its API reference, and Spark's page on configuration).

A real driver makes the executors when it runs; here all come at once, owned by the application.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu.translation import shown
from simulator.controllers.pods import Charge, Json, Malformed, Placed, child, number, placed, read_template

#: Fields of driver and executor that go into the spec of their pods as they are.
_SPEC: Final = ("schedulerName", "nodeSelector", "tolerations", "affinity", "priorityClassName", "hostNetwork")
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,9})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_MIB: Final = 1024**2
_UNITS: Final = {"": 1, "k": 1024, "m": _MIB, "g": 1024**3, "t": 1024**4}
_LEAST_OVERHEAD: Final = 384 * _MIB
#: Percent of a pod's memory for what is not Java's heap: as Spark adds it, by the type of the application.
_OVERHEAD: Final = {"Python": 40, "R": 40}
_USUAL_OVERHEAD: Final = 10


def expand(app: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the driver and the executors. Raises Malformed."""
    spec, name = child(app, "spec"), app["metadata"]["name"]
    if child(spec, "suspend") is True:
        return
    for role, count in (("driver", 1), ("executor", number(child(spec, "executor"), "instances", "spec.executor", 1))):
        path = f"spec.{role}"
        template = read_template(_pod(spec, role, path), path)
        charge(count, f"{path}.instances", template)
        for index in range(count):
            pod = f"{name}-driver" if role == "driver" else f"{name}-exec-{index + 1}"
            labels = {"sparkoperator.k8s.io/app-name": name, "spark-role": role}
            yield placed([app], template, name=pod, labels=labels)


def templates(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield the pods of driver and executor, with their paths. Raises Malformed."""
    for role in ("driver", "executor"):
        yield f"{path}.{role}", _pod(spec, role, f"{path}.{role}")


def _pod(spec: Json, role: str, path: str) -> dict[str, Any]:
    written = child(spec, role) or {}
    if not isinstance(written, Mapping):
        raise Malformed(f"{path} is {shown(repr(written))}; an object is allowed")
    requests: dict[str, Any] = {
        "cpu": str(written.get("coreRequest") or written.get("cores") or 1),
        "memory": str(_memory(spec, written, path)),
    }
    limits: dict[str, Any] = {"memory": requests["memory"]}
    if written.get("coreLimit"):
        limits["cpu"] = str(written["coreLimit"])
    gpu = written.get("gpu")
    if gpu is not None:
        limits[str(child(gpu, "name"))] = number(gpu, "quantity", f"{path}.gpu", 0)
    main = {"name": f"spark-kubernetes-{role}", "image": written.get("image") or spec.get("image") or "spark"}
    containers = [{**main, "resources": {"requests": requests, "limits": limits}}]
    meta = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
    own = {field: written[field] for field in _SPEC if written.get(field) is not None}
    return {"metadata": meta, "spec": {**own, "restartPolicy": "Never", "containers": containers}}


def _memory(spec: Json, written: Json, path: str) -> int:
    """Return the bytes that a pod asks for: those written, and what Spark adds to them."""
    heap = _bytes(written.get("memory") or "1g", f"{path}.memory")
    if written.get("memoryOverhead"):
        return heap + _bytes(written["memoryOverhead"], f"{path}.memoryOverhead")
    percent = _OVERHEAD.get(str(spec.get("type")), _USUAL_OVERHEAD)
    return heap + max(heap * percent // 100, _LEAST_OVERHEAD)


def _bytes(text: object, path: str) -> int:
    """Return bytes in Java's notation, in which 512m are 512 MiB. Raises Malformed."""
    found = _MEMORY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Malformed(f"{path} is {shown(repr(text))}; a whole number with k, m, g or t is allowed, as in '512m'")
    return int(found[1]) * _UNITS[found[2].lower()]

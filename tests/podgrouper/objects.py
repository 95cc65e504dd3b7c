"""Workloads, their pods and all between them, written after the API references of their projects."""

from __future__ import annotations

from typing import Any

from podgrouper.core.answers import Json
from podgrouper.core.owner_chain import Read

NAMESPACE = "team"


def obj(api_version: str, kind: str, name: str, *above: Json, spec: Any = None, **meta: Any) -> dict[str, Any]:
    """An object that the objects ``above`` own."""
    owners = {"ownerReferences": [reference(each) for each in above]} if above else {}
    made = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"{kind.lower()}-{name}", **owners, **meta},
    }
    return made if spec is None else {**made, "spec": spec}


def reference(of: Json) -> dict[str, Any]:
    meta = of["metadata"]
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": meta["name"], "uid": meta["uid"]}


def pod(*above: Json, name: str = "p", labels: Any = None, spec: Any = None, **meta: Any) -> dict[str, Any]:
    written = {"containers": [{"name": "main", "image": "work"}]} if spec is None else spec
    return obj("v1", "Pod", name, *above, spec=written, labels=labels or {}, **meta)


def read(*objects: Json, **named: Any) -> Read:
    """What was read: objects by UID, and those by name that a rule asks for."""
    return Read(owners={each["metadata"]["uid"]: each for each in objects}, named=named.get("named", {}))


def chained(bottom: dict[str, Any], *levels: dict[str, Any]) -> tuple[dict[str, Any], Read]:
    """A pod below objects, each of which is owned by the next one."""
    linked: list[dict[str, Any]] = []
    for each in reversed(levels):
        above = {"ownerReferences": [reference(linked[-1])]} if linked else {}
        linked.append({**each, "metadata": {**each["metadata"], **above}})
    owners = {"ownerReferences": [reference(linked[-1])]} if linked else {}
    return {**bottom, "metadata": {**bottom["metadata"], **owners}}, read(*linked)

"""Raw pods as the API server sends them, reviews around them, and a JSON patch applied by the letter of RFC 6902."""

from __future__ import annotations

import base64
import json
from typing import Any

from wire import names

Raw = dict[str, Any]


def container(name: str = "main", **fields: Any) -> Raw:
    return {"name": name, "image": "cuda", "resources": {}, **fields}


def pod(
    *containers: Raw,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    metadata: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A pod without a UID, and maybe without a name: that is how a new one comes to admission."""
    about: Raw = {"name": "trainer", "namespace": "team-a"} if metadata is None else dict(metadata)
    if annotations is not None:
        about["annotations"] = annotations
    if labels is not None:
        about["labels"] = labels
    body = {"schedulerName": scheduler, "containers": list(containers) or [container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": body}


def half(*containers: Raw, **fields: Any) -> Raw:
    """A pod that asks for half a GPU."""
    annotations = {names.GPU_FRACTION: "0.5", **(fields.pop("annotations", None) or {})}
    return pod(*containers, annotations=annotations, **fields)


def env(owner: Raw, *, kind: str = "containers", index: int = 0) -> dict[str, Any]:
    """The env of one container by name: what it reads, or the literal. Refuses doubled names."""
    entries = owner["spec"][kind][index].get("env") or []
    assert len({entry["name"] for entry in entries}) == len(entries), entries
    return {entry["name"]: entry.get("valueFrom") or entry.get("value", "") for entry in entries}


def review(
    obj: Any, *, operation: str = "CREATE", old: Any = None, subresource: str = "", namespace: str = "team-a"
) -> Raw:
    request = {
        "uid": "7f0c1a52-0000-4000-8000-000000000001",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": operation,
        "namespace": namespace,
        "userInfo": {"username": "alice"},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
    }
    if subresource:
        request["subResource"] = subresource
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patched(obj: Raw, answer: Raw) -> Raw:
    """What the API server makes of an object and an answer that allows it."""
    response = answer["response"]
    assert response["allowed"], response
    if "patch" not in response:
        return obj
    assert response["patchType"] == "JSONPatch"
    return apply(obj, json.loads(base64.b64decode(response["patch"])))


def apply(obj: Raw, operations: list[Raw]) -> Raw:
    result: Raw = json.loads(json.dumps(obj))
    for operation in operations:
        *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")][1:]
        owner: Any = result
        for step in steps:
            owner = owner[int(step)] if isinstance(owner, list) else owner[step]
        key: Any = int(last) if isinstance(owner, list) else last
        match operation["op"]:
            case "add" if isinstance(owner, list):
                owner.insert(key, operation["value"])
            case "add":
                owner[key] = operation["value"]
            case "replace":
                assert isinstance(owner, list) or key in owner
                owner[key] = operation["value"]
            case "remove":
                del owner[key]
            case other:
                raise AssertionError(other)
    return result

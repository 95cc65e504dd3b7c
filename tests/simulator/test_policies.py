"""The API server's policies in simulations say what tests/cluster/test_policies.py shows of the real ones."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.policies import policies

TENANTS = {"moorage.dev/tenants": '{"u1":{}}'}


def pod(*, reservation: bool = False, node: str = "", finalizers: tuple[str, ...] = (), **annotations: str) -> Any:
    labels = {"app": "kai-resource-reservation"} if reservation else {}
    keys = {key.replace("__", "."): value for key, value in annotations.items()}
    metadata = {"name": "p", "labels": labels, "annotations": keys, "finalizers": list(finalizers)}
    return {"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "nodeName": node}}


def with_annotations(raw: Any, annotations: dict[str, str]) -> Any:
    return {**raw, "metadata": {**raw["metadata"], "annotations": annotations}}


async def refused(
    resource: str, operation: str, *, old: Any, new: Any, user: str = "somebody", **more: str
) -> list[int]:
    """Ask all policies on a resource as the server does; return the codes with which they refuse."""
    request = {
        "uid": "1",
        "operation": operation,
        "namespace": "team",
        "name": "p",
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
        **more,
    }
    concerned = [
        p for p in policies(lambda name: name == "binder") if p.resource == resource and operation in p.operations
    ]
    answers = [(await policy.review({"request": request}))["response"] for policy in concerned]
    return [answer["status"]["code"] for answer in answers if not answer["allowed"]]


RESERVED = {"namespace": "kai-resource-reservation"}
HELD = with_annotations(pod(reservation=True, finalizers=("moorage.dev/book",)), TENANTS)
EMPTY = with_annotations(HELD, {"moorage.dev/tenants": "{}"})
TOLD = with_annotations(HELD, {**TENANTS, "run.ai/reserve_for_gpu_index": "GPU-a"})
UNHELD = {**HELD, "metadata": {**HELD["metadata"], "finalizers": []}}
GRANTED = with_annotations(pod(), {"moorage.dev/grant": "{}"})
RECORDED = with_annotations(pod(), {"moorage.dev/gpu": "{}"})
HALF = with_annotations(pod(node="n"), {"gpu-fraction": "0.5"})
QUEUED = {**pod(node="n"), "metadata": {**pod()["metadata"], "labels": {"kai.scheduler/queue": "a"}}}
GROUPED = with_annotations(pod(node="n"), {"pod-group-name": "g"})
PLANNED = {"metadata": {"annotations": {"moorage.dev/plan": "{}"}}}
ORDER = {"metadata": {"annotations": {"moorage.dev/handover": "{}"}}, "spec": {"selectedNode": "n"}}
KEPT = {
    "metadata": {"annotations": {"moorage.dev/handover": "{}"}, "finalizers": ["a.b/c"]},
    "spec": {"selectedNode": "n"},
}


@pytest.mark.parametrize(
    ("resource", "operation", "old", "new", "more", "codes"),
    [
        ("pods", "CREATE", None, GRANTED, {}, [403]),
        ("pods", "CREATE", None, pod(), {}, []),
        ("pods", "UPDATE", pod(), GRANTED, {}, [403]),
        ("pods", "UPDATE", GRANTED, pod(), {}, [403]),
        ("pods/status", "UPDATE", GRANTED, pod(), {}, [403]),
        ("pods/binding", "CREATE", None, GRANTED, {}, [403]),
        ("pods", "CREATE", None, RECORDED, {}, []),
        ("pods", "UPDATE", pod(), RECORDED, {}, [403]),
        ("pods/binding", "CREATE", None, RECORDED, {}, [403]),
        ("pods", "UPDATE", HALF, pod(node="n"), {}, [403]),
        ("pods", "UPDATE", QUEUED, pod(node="n"), {}, [403]),
        ("pods/status", "UPDATE", pod(node="n"), QUEUED, {}, [403]),
        ("pods", "UPDATE", {**QUEUED, "spec": {"schedulerName": "kai-scheduler"}}, pod(), {}, []),
        ("pods", "UPDATE", GROUPED, pod(node="n"), {}, [403]),
        ("pods", "UPDATE", pod(node="n"), GROUPED, {}, []),
        ("pods", "UPDATE", {**HALF, "spec": {"schedulerName": "kai-scheduler"}}, pod(), {}, []),
        ("pods", "CREATE", None, pod(reservation=True), RESERVED, [403]),
        ("pods", "DELETE", HELD, None, RESERVED, [403]),
        ("pods", "DELETE", EMPTY, None, RESERVED, []),
        ("pods", "DELETE", HELD, None, {}, []),
        ("pods", "UPDATE", HELD, UNHELD, RESERVED, [403]),
        ("pods", "UPDATE", HELD, TOLD, RESERVED, [403]),
        ("pods/eviction", "CREATE", EMPTY, EMPTY, RESERVED, [429]),
        ("pods/eviction", "CREATE", pod(), pod(), {}, []),
        ("bindrequests", "CREATE", None, ORDER, {}, [403]),
        ("bindrequests", "UPDATE", ORDER, {**ORDER, "spec": {"selectedNode": "m"}}, {}, [403]),
        ("bindrequests", "UPDATE", ORDER, ORDER, {}, []),
        ("bindrequests", "UPDATE", ORDER, KEPT, {}, [403]),
        ("bindrequests", "UPDATE", KEPT, ORDER, {}, []),
        ("podgroups", "CREATE", None, PLANNED, {}, [403]),
        ("podgroups", "UPDATE", PLANNED, PLANNED, {}, []),
        ("configmaps", "CREATE", None, {"metadata": {}}, {"name": "p-x7k2p9q-shared-gpu-0"}, [403]),
        ("configmaps", "CREATE", None, {"metadata": {}}, {"name": "settings"}, []),
    ],
)
async def test_what_users_may_write(
    resource: str, operation: str, old: Any, new: Any, more: dict[str, str], codes: list[int]
) -> None:
    assert await refused(resource, operation, old=old, new=new, **more) == codes
    assert await refused(resource, operation, old=old, new=new, user="binder", **more) == []

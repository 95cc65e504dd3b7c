"""Which documents both sides get, and in what form."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.nodes.containers import RUN_S
from tools.samecheck.simulated import adopted, items, left_out

Json = dict[str, Any]


def _object(kind: str, *, version: str = "batch/v1", spec: Json | None = None, **metadata: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec or {}}


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"dialects": {}}, "no object of Kubernetes"),
        (_object("JobSet", version="jobset.x-k8s.io/v1alpha2"), "does not serve"),
        (_object("CronJob"), "at its time"),
        (_object("CronJob", spec={"suspend": True}), ""),
        (_object("Job", spec={"suspend": True}), ""),
        (_object("Job", spec={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "q"}), "Kueue"),
        (_object("Node", version="v1"), "part of a cluster"),
        (_object("Pod", version="v1", ownerReferences=[{"kind": "Job"}]), "with an owner"),
        (_object("Pod", version="v1", resourceVersion="5"), "or version"),
        (_object("Pod", version="v1"), ""),
    ],
)
def test_what_one_side_takes_otherwise_is_left_out_with_the_reason(document: Json, part: str) -> None:
    why = left_out(document, lambda each: each["kind"] != "JobSet")
    assert bool(why) == bool(part)
    assert part in why


def test_objects_of_lists_come_one_by_one_and_their_containers_end_after_a_second() -> None:
    template = {"metadata": {"annotations": {RUN_S: "600"}}}
    listed = {"kind": "List", "items": [_object("Job", spec={"template": template}), _object("Pod")]}
    first, second, third = items([listed, None, _object("Queue")])
    assert first["spec"]["template"]["metadata"]["annotations"] == {RUN_S: "1"}
    assert (second["kind"], third["kind"]) == ("Pod", "Queue")


def test_pods_without_a_node_are_given_to_moorage() -> None:
    pod = {"containers": [{"name": "main"}]}
    made = adopted(_object("Job", spec={"template": {"spec": pod}, "other": [1]}))
    assert made["spec"] == {"template": {"spec": {**pod, "schedulerName": "kai-scheduler"}}, "other": [1]}
    assert adopted({**pod, "nodeName": "n"}) == {**pod, "nodeName": "n"}

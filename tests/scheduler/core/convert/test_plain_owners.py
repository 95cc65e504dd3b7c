"""Pods of ReplicaSets, StatefulSets and unknown controllers start alone only where nobody says more of their group."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.conditions.messages import told
from scheduler.core.cluster import Cluster
from scheduler.core.convert.bounds import LONGEST_NAME
from scheduler.core.convert.owners import plain_record
from scheduler.core.model.plan import Bind, Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from wire import names
from wire.core import Named, Pod

S = 1_000_000_000
GROUPED = Settings(workloads_are_grouped=True)
GANG = {names.BATCH_MIN_MEMBER: "3"}
QUEUE = {names.QUEUE_LABEL: "research"}
SKIPPED = {names.SKIP_POD_GROUPER: "true"}
TOP = ("apps/v1", "Deployment")
WAITS_FOR_SET = (Code.NOT_GROUPED, "StatefulSet")


def of(kind: str, **asked: Any) -> Pod:
    return pod("m", gpus=1, owner=("apps/v1", kind), **asked)


def owner(name: str = "o", *, above: tuple[str, str] | None = None, **meta: Any) -> Named:
    owners = [{"apiVersion": above[0], "kind": above[1], "name": "top", "uid": "top"}] if above else None
    return msgspec.convert(
        {"metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": owners, **meta}}, Named
    )


def seen(made: Cluster, kind: str, found: Named) -> Cluster:
    made.owners.plain[kind].put(plain_record(kind)(found))
    return made


def said(made: Cluster, at_ns: int = 0) -> tuple[Code, str] | None:
    """Why the pod waits; None: it is bound."""
    (entry,) = made.decide(at_ns).entries
    if isinstance(entry, Bind):
        return None
    assert isinstance(entry, Explain)
    verdict: Verdict = entry.verdict
    return verdict.code, verdict.detail


@pytest.mark.parametrize(
    ("found", "asked", "expected"),
    [
        pytest.param(owner(annotations=GANG), {}, WAITS_FOR_SET, id="a gang"),
        pytest.param(owner(labels=QUEUE), {}, WAITS_FOR_SET, id="a queue"),
        pytest.param(owner(labels=QUEUE), {"labels": {names.QUEUE_LABEL: "other"}}, WAITS_FOR_SET, id="another queue"),
        pytest.param(owner(labels=QUEUE), {"labels": QUEUE}, None, id="the pod's own queue"),
        pytest.param(owner(), {"labels": QUEUE}, None, id="nothing"),
        pytest.param(owner(labels={names.QUEUE_LABEL: ""}), {}, None, id="an empty queue"),
        pytest.param(owner(annotations={**GANG, **SKIPPED}), {}, None, id="skipped"),
        pytest.param(owner(annotations=GANG), {"annotations": SKIPPED}, None, id="skipped by the pod"),
        pytest.param(owner(above=("kubeflow.org/v1", "Notebook")), {}, (Code.NOT_GROUPED, "Notebook"), id="Notebook"),
        pytest.param(owner(above=TOP), {}, (Code.NOT_GROUPED, "Deployment"), id="a Deployment"),
        pytest.param(
            owner(above=("kubeflow.org/v1", "Notebook")), {"annotations": {names.ALONE: "true"}}, None, id="told alone"
        ),
    ],
)
def test_a_pod_of_a_stateful_set_starts_alone_if_that_says_no_more_than_the_pod(
    found: Named, asked: dict[str, Any], expected: tuple[Code, str] | None
) -> None:
    made = seen(cluster(node(), of("StatefulSet", **asked), settings=GROUPED), "StatefulSet", found)
    assert said(made) == expected


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        pytest.param(owner("top", labels=QUEUE), (Code.NOT_GROUPED, "Deployment"), id="a queue"),
        pytest.param(owner("top"), None, id="nothing"),
        pytest.param(owner("top", labels=QUEUE, annotations=SKIPPED), None, id="skipped"),
        pytest.param(
            owner("top", above=("serving.knative.dev/v1", "Revision")), (Code.NOT_GROUPED, "Revision"), id="Knative"
        ),
        pytest.param(owner("top", above=TOP), (Code.NOT_GROUPED, "Deployment"), id="itself"),
    ],
)
def test_a_pod_of_a_deployment_goes_by_that_and_not_by_its_replica_set(
    deployment: Named, expected: tuple[Code, str] | None
) -> None:
    made = cluster(node(), of("ReplicaSet"), settings=GROUPED)
    seen(made, "ReplicaSet", owner(above=("apps/v1", "Deployment"), labels={names.QUEUE_LABEL: "ignored"}))
    assert said(made) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(seen(made, "Deployment", deployment)) == expected


def test_a_pod_waits_for_its_stateful_set_to_be_seen_and_no_longer_than_that() -> None:
    made = cluster(node(), of("StatefulSet"), settings=GROUPED)
    assert said(made) == (Code.OWNER_NOT_SEEN, "StatefulSet o")
    assert said(made, 10 * S - 1) == (Code.OWNER_NOT_SEEN, "StatefulSet o")
    assert said(made, 10 * S) is None


def test_while_stateful_sets_can_not_be_read_their_pods_wait() -> None:
    made = cluster(node(), of("StatefulSet"), settings=GROUPED)
    made.owners.plain["StatefulSet"].expect()
    assert said(made, 3600 * S) == (Code.NOT_READ, "statefulsets.apps")
    (entry,) = made.decide(3601 * S).entries
    assert isinstance(entry, Explain)
    assert "needs the rights list and watch on them" in told(entry.verdict).message


def test_a_pod_that_names_its_pod_group_goes_by_that() -> None:
    made = cluster(node(), pod_group("g", 1), of("StatefulSet", group="g"), settings=GROUPED)
    assert said(seen(made, "StatefulSet", owner(annotations=GANG))) is None


def test_where_nothing_is_grouped_pods_start_as_they_come() -> None:
    assert said(seen(cluster(node(), of("StatefulSet")), "StatefulSet", owner(annotations=GANG))) is None
    assert said(cluster(node(), pod("m", gpus=1, owner=("example.com/v1", "Batch")))) is None


@pytest.mark.parametrize(
    ("kind", "annotations", "expected"),
    [
        (("example.com/v1", "Batch"), {}, (Code.NOT_GROUPED, "Batch")),
        (("tekton.dev/v1", "TaskRun"), {}, (Code.NOT_GROUPED, "TaskRun")),
        (("example.com/v1", "Batch"), {names.ALONE: "true"}, None),
        (("example.com/v1", "Batch"), SKIPPED, None),
        (("apps/v1", "DaemonSet"), {}, None),
        (("v1", "ReplicationController"), {}, None),
        (("kubeflow.org/v1", "PyTorchJob"), {}, (Code.NOT_GROUPED, "PyTorchJob")),
        (("kubeflow.org/v1", "PyTorchJob"), {names.ALONE: "true"}, (Code.NO_POD_GROUP, "PyTorchJob")),
        (("kubeflow.org/v1", "PyTorchJob"), SKIPPED, (Code.NO_POD_GROUP, "PyTorchJob")),
    ],
)
def test_a_pod_of_a_controller_that_nobody_knows_waits_for_the_podgroupers_word(
    kind: tuple[str, str], annotations: dict[str, str], expected: tuple[Code, str] | None
) -> None:
    made = cluster(node(), pod("m", gpus=1, owner=kind, annotations=annotations), settings=GROUPED)
    assert said(made) == expected


def test_deployments_and_replica_sets_without_waiting_pods_have_nobody_decided_on_again() -> None:
    made = seen(cluster(node(gpus=0), of("ReplicaSet"), settings=GROUPED), "ReplicaSet", owner(above=TOP))
    seen(made, "Deployment", owner("top"))
    before = made.generation
    for number in range(3):
        seen(made, "ReplicaSet", owner(f"r{number}", above=("apps/v1", "Deployment"), labels=QUEUE))
        seen(made, "Deployment", owner(f"d{number}", labels=QUEUE))
        seen(made, "StatefulSet", owner(f"s{number}", labels=QUEUE))
    assert made.generation == before
    seen(made, "Deployment", owner("top", labels=QUEUE))
    assert made.generation > before


def test_a_pod_is_decided_on_again_when_its_deployment_says_something_else_or_goes() -> None:
    made = seen(cluster(node(), of("ReplicaSet"), settings=GROUPED), "ReplicaSet", owner(above=TOP))
    top = owner("top", labels=QUEUE)
    assert said(seen(made, "Deployment", top)) == (Code.NOT_GROUPED, "Deployment")
    made.owners.plain["Deployment"].drop(plain_record("Deployment")(top))
    assert said(made) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(seen(made, "Deployment", owner("top"))) is None


@pytest.mark.parametrize(("end", "expected"), [("", None), ("x", WAITS_FOR_SET)])
def test_long_annotations_are_told_apart_and_not_kept(end: str, expected: tuple[Code, str] | None) -> None:
    long = "a" * 200_000
    made = cluster(node(), of("StatefulSet", annotations={names.TOPOLOGY: long}), settings=GROUPED)
    found = plain_record("StatefulSet")(owner(annotations={names.TOPOLOGY: long + end}))
    record = made.pod("uid-m")
    assert record is not None
    assert all(len(value) <= LONGEST_NAME for _, value in (*record.stated, *found.stated))
    made.owners.plain["StatefulSet"].put(found)
    assert said(made) == expected


def test_a_deployment_is_waited_for_from_when_its_replica_set_was_seen() -> None:
    made = cluster(node(), of("ReplicaSet"), settings=GROUPED)
    assert said(made) == (Code.OWNER_NOT_SEEN, "ReplicaSet o")
    seen(made, "ReplicaSet", owner(above=TOP))
    for at_ns in (9 * S, 19 * S - 1):
        assert said(made, at_ns) == (Code.OWNER_NOT_SEEN, "Deployment top")
    assert said(made, 19 * S) is None

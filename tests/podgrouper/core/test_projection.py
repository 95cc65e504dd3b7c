from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podgrouper.core import projection
from tests.podgrouper.objects import obj, pod
from wire.core import Pod

JOB = obj("batch/v1", "Job", "j", spec={"parallelism": 3}, annotations={"a": "b", projection.LAST_APPLIED: "x" * 1000})


def decoded(body: dict[str, Any]) -> dict[str, Any]:
    return projection.pod_as_read(msgspec.convert(body, Pod))


def test_of_a_pod_only_what_rules_read_is_kept() -> None:
    env = [{"name": "AZUREML_NODE_COUNT", "value": "3"}, {"name": "PASSWORD", "value": "secret"}]
    containers = [{"name": "main", "image": "work", "env": env}]
    read = decoded(pod(JOB, spec={"containers": containers, "priorityClassName": "train", "nodeName": "n"}))
    assert read["spec"] == {
        "priorityClassName": "train",
        "nodeName": "n",
        "containers": [{"env": [{"name": "AZUREML_NODE_COUNT", "value": "3"}]}],
    }
    assert read["metadata"]["ownerReferences"] == pod(JOB)["metadata"]["ownerReferences"]


CHANGES = [
    pytest.param({"labels": {"kai.scheduler/queue": "a"}}, {}, True, id="a label"),
    pytest.param({"annotations": {"pod-group-name": "g"}}, {}, True, id="the group"),
    pytest.param({}, {"priorityClassName": "train"}, True, id="the priority class"),
    pytest.param({}, {"nodeName": "n"}, False, id="the node"),
    pytest.param({"annotations": {projection.LAST_APPLIED: "x"}}, {}, False, id="kubectl's copy"),
    pytest.param({"resourceVersion": "7"}, {}, False, id="the version"),
]


@pytest.mark.parametrize(("meta", "spec", "is_new"), CHANGES)
def test_a_pod_is_looked_at_again_when_what_decides_on_its_group_changes(
    meta: dict[str, Any], spec: dict[str, Any], is_new: bool
) -> None:
    plain = pod(JOB)
    changed = {**plain, "metadata": {**plain["metadata"], **meta}, "spec": {**plain["spec"], **spec}}
    assert (projection.fingerprint(decoded(plain)) != projection.fingerprint(decoded(changed))) is is_new


def key_of(body: dict[str, Any]) -> projection.Key:
    return projection.key_of(decoded(body))


def test_pods_of_one_owner_are_grouped_together_and_a_pod_of_nobody_by_itself() -> None:
    assert key_of(pod(JOB, name="a")) == key_of(pod(JOB, name="b")) == ("team", "Job.batch j job-j")
    assert key_of(pod(name="a")) == ("team", "Pod a pod-a")


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(pod(JOB, name="b", namespace="other"), id="another namespace"),
        pytest.param(pod({**JOB, "kind": "Nothing"}, name="b"), id="another kind"),
        pytest.param(pod({**JOB, "apiVersion": "example.com/v1"}, name="b"), id="another group"),
        pytest.param(
            pod(obj("batch/v1", "Job", "x") | {"metadata": {"name": "x", "uid": "job-j"}}, name="b"), id="name"
        ),
        pytest.param(pod(JOB, obj("batch/v1", "Job", "k"), name="b"), id="two owners"),
    ],
)
def test_a_pod_with_the_uid_of_an_owner_alone_has_nothing_in_common_with_its_pods(forged: dict[str, Any]) -> None:
    assert key_of(forged) != key_of(pod(JOB, name="a"))


@pytest.mark.parametrize("name", ["../../team/jobs/quiet", "j" * 100_000])
def test_a_pod_with_a_reference_that_no_object_has_shares_its_key_with_nobody(name: str) -> None:
    first, second = (pod({**JOB, "metadata": {"name": name, "uid": "u"}}, name=each) for each in ("a", "b"))
    assert (key_of(first), key_of(second)) == (("team", "Pod a pod-a"), ("team", "Pod b pod-b"))


def test_pods_of_one_gang_are_grouped_together_whoever_owns_them() -> None:
    words: dict[str, Any] = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}
    keys = {key_of(each) for each in (pod(JOB, name="a", **words), pod(name="b", **words))}
    assert keys == {("team", "coscheduling llm")}
    assert key_of(pod(name="c", namespace="other", **words)) == ("other", "coscheduling llm")


def test_of_the_name_of_a_pod_group_that_is_too_long_to_be_one_no_more_is_kept_than_tells_it() -> None:
    long = decoded(pod(annotations={"pod-group-name": "g" * 200_000}))
    assert projection.group_of(long) == "g" * 254
    assert projection.group_of(decoded(pod(annotations={"pod-group-name": "g" * 253}))) == "g" * 253


SPECS = [
    ("batch/v1", "Job", False),
    ("apps/v1", "ReplicaSet", False),
    ("example.com/v1", "Batch", False),
    ("kubeflow.org/v1", "PyTorchJob", True),
    ("ray.io/v1", "RayCluster", True),
    ("v1", "Pod", True),
    ("scheduler.grove.io/v1alpha1", "PodGang", True),
]


@pytest.mark.parametrize(("version", "kind", "kept"), SPECS)
def test_the_spec_of_an_owner_is_kept_only_where_a_rule_reads_it(version: str, kind: str, kept: bool) -> None:
    read = projection.owner_as_read({**JOB, "apiVersion": version, "kind": kind})
    assert ("spec" in read) is kept
    assert read["metadata"]["annotations"] == {"a": "b"}

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import JOBS
from simulator.controllers.jobs import INDEX, of_cron_job, owned
from simulator.controllers.kubernetes import Expander
from simulator.controllers.pods import Malformed, Template

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "work", "env": [{"name": "A", "value": "b"}]},
            {"name": "own", "image": "work", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]},
        ],
    },
}


def job(**spec: Any) -> dict[str, Any]:
    meta = {"name": "train", "annotations": {"kai.scheduler/batch-min-member": "2"}}
    return {"kind": "Job", "metadata": meta, "spec": {"template": TEMPLATE, **spec}}


def test_a_job_comes_before_its_pods_with_its_annotations() -> None:
    first, second = Expander().expand(job())
    assert first.resource is JOBS
    assert first.body["metadata"]["annotations"] == {"kai.scheduler/batch-min-member": "2"}
    assert second.job == "train"
    assert "annotations" not in second.body["metadata"]


def test_a_pod_of_a_job_has_its_names_and_once_it_is_known_its_uid() -> None:
    pod = owned(Expander().expand(job())[1].body, "uid-1")
    assert pod["metadata"]["labels"] == {
        "app": "a",
        "batch.kubernetes.io/job-name": "train",
        "job-name": "train",
        "batch.kubernetes.io/controller-uid": "uid-1",
        "controller-uid": "uid-1",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_pod_of_an_indexed_job_knows_its_index() -> None:
    pod = Expander().expand(job(completions=3, parallelism=3, completionMode="Indexed"))[2].body
    assert pod["metadata"]["annotations"] == {INDEX: "1"}
    assert pod["metadata"]["labels"][INDEX] == "1"
    assert pod["spec"]["hostname"] == "train-1"
    main, own = pod["spec"]["containers"]
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    added = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert main["env"] == [{"name": "A", "value": "b"}, added]
    assert own["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]
    assert "initContainers" not in pod["spec"]


def test_a_cron_job_makes_one_job_that_it_owns() -> None:
    wanted = {"metadata": {"labels": {"of": "night"}, "annotations": {"a": "b"}}, "spec": {"template": TEMPLATE}}
    made = Expander().expand({"kind": "CronJob", "metadata": {"name": "night"}, "spec": {"jobTemplate": wanted}})
    meta = made[0].body["metadata"]
    assert (meta["name"], meta["labels"], meta["annotations"]) == ("night-0", {"of": "night"}, {"a": "b"})
    assert (meta["ownerReferences"][0]["kind"], meta["ownerReferences"][0]["name"]) == ("CronJob", "night")
    assert made[1].job == "night-0"


@pytest.mark.parametrize("field", ["metadata", "spec"])
@pytest.mark.parametrize("value", [5, "text", [1]])
def test_a_job_template_that_is_none_is_refused_by_its_field(field: str, value: object) -> None:
    wanted = {"spec": {"template": {"spec": {"containers": []}}}, field: value}
    cron = {"metadata": {"name": "night"}, "spec": {"jobTemplate": wanted}}
    with pytest.raises(Malformed, match=rf"spec\.jobTemplate\.{field} is .*; allowed: a mapping"):
        list(of_cron_job(cron, Template("spec", {}, 0)))

from __future__ import annotations

from pathlib import Path

import pytest

from cli.explaining import groups, supposing
from cli.inspection.options import POD as POD_KIND
from cli.queueing import files
from cli.queueing.pools import About
from cli.refusing import BadInput

QUEUE = """apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: a, creationTimestamp: 2026-01-02T03:04:05Z}
spec: {resources: {gpu: {quota: 1, limit: -1, overQuotaWeight: 1}}}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kai.scheduler/queue: a}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def written(folder: Path, *documents: str) -> list[str]:
    path = folder / "cluster.yaml"
    path.write_text("---\n".join(documents), encoding="utf-8")
    return [str(path)]


def test_objects_need_no_namespace_uid_or_quoted_date(tmp_path: Path) -> None:
    known = files.read(written(tmp_path, QUEUE, POD, POD.replace("name: p", "name: q")))
    queues = known.snapshot.queues
    assert [(record.name, record.created) for record in queues.records.all()] == [("a", "2026-01-02T03:04:05Z")]
    assert queues.sums.sums["a"].asked.gpu_nano == 4 * 10**9
    assert known.unread == ()


def test_what_queues_do_not_depend_on_is_named(tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    known = files.read(written(tmp_path, QUEUE, service, service))
    assert known.unread == ("2 of kind Service: queues do not depend on them",)


CLASS = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
"""
SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpus}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}]
"""
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
"""
RULE = """apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: ill}
spec: {deviceSelector: {device: d0}, taint: {key: ill, effect: NoSchedule}}
"""
SCHEDULER = """apiVersion: v1
kind: Pod
metadata: {name: s, namespace: kai-scheduler, labels: {app.kubernetes.io/component: scheduler}}
spec: {containers: [{name: scheduler, args: [scheduler, --device-taint-rules=true]}]}
"""
NODE = """apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: 4, memory: 8Gi, pods: 110}
  conditions: [{type: Ready, status: "True"}]
"""
CLAIMING = """apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kai.scheduler/queue: a}}
spec:
  schedulerName: kai-scheduler
  resourceClaims: [{name: gpu, resourceClaimName: c}]
  containers: [{name: main}]
"""
ALL = (QUEUE, NODE, CLAIMING, CLASS, SLICE, CLAIM)


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        (ALL, "fits now, on node n1"),
        (ALL[:-1], 'resourceclaim "c" not found'),
        ((*ALL[:4], CLAIM), "cannot allocate all claims"),
        ((*ALL, RULE, SCHEDULER), "cannot allocate all claims"),
        ((*ALL, RULE, SCHEDULER.replace("true", "false")), "fits now, on node n1"),
    ],
)
def test_a_pod_with_a_claim_is_explained_by_the_devices_of_the_files(
    tmp_path: Path, documents: tuple[str, ...], told: str
) -> None:
    known = files.read(written(tmp_path, *documents), About(kind=POD_KIND, name="p", namespace="default"))
    subject = supposing.subject(known, POD_KIND, "default", "p")
    assert told in groups.group_view(supposing.explained(known, subject, [], 1_800_000_000)).message
    assert known.unread == ()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (QUEUE.replace("quota: 1", "quota: many"), "document 1: Queue a: Expected `float | null`"),
        ("kind: [", "not YAML"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(tmp_path: Path, document: str, told: str) -> None:
    with pytest.raises(BadInput, match=r".*") as refused:
        files.read(written(tmp_path, document))
    assert told in str(refused.value)

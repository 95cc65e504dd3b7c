from __future__ import annotations

from pathlib import Path

import pytest

from cli.queueing import files
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

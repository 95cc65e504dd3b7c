"""What admission tells of a pod's PodGroup is what the table says."""

from __future__ import annotations

import pytest

from tests.workloads.objects import chained, obj, pod
from wire import gangs
from workloads.core import reading
from workloads.core.case import Makes, Name, Top
from workloads.core.grouping import group
from workloads.core.kinds import KINDS
from workloads.core.values import Group
from workloads.core.walk import Absent, Read

ROWS = [row for row in KINDS if (row.api_group, row.kind) in gangs.NAMED_BY_OWNER]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}.{row.versions[0]}")
def test_a_kind_whose_name_is_told_is_grouped_by_that_name_and_without_parts(row: object) -> None:
    (kind,) = [each for each in ROWS if each is row]
    assert (kind.makes, kind.name, kind.top) == (Makes.ALWAYS, Name.BY_OWNER, Top.OWNER)
    spec = {kind.replicas: {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}} if kind.replicas else {}
    bottom, read = chained(pod(), obj(f"{kind.api_group}/{kind.versions[0]}", kind.kind, "top", spec=spec))
    known = Read(owners=read.owners, named={("batch", "Job", "top-launcher"): Absent.NOT_FOUND})
    made = group(bottom, known)
    assert isinstance(made, Group)
    assert (made.pod_group.metadata.name, made.part) == (reading.told_group(bottom), "")


def test_every_kind_whose_name_is_told_is_in_the_table() -> None:
    assert {(row.api_group, row.kind) for row in ROWS} == gangs.NAMED_BY_OWNER

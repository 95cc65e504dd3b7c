"""What admission tells of a pod's PodGroup is what the table says."""

from __future__ import annotations

import pytest

from podgrouper.core import projection
from podgrouper.core.answers import Group
from podgrouper.core.case import Makes, Name, Top
from podgrouper.core.grouping import group
from podgrouper.core.kinds import KINDS
from podgrouper.core.owner_chain import Absent, Read
from tests.podgrouper.objects import chained, obj, pod
from wire import gangs

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
    assert (made.pod_group.metadata.name, made.part) == (projection.told_group(bottom), "")


def test_every_kind_whose_name_is_told_is_in_the_table() -> None:
    assert {(row.api_group, row.kind) for row in ROWS} == gangs.NAMED_BY_OWNER

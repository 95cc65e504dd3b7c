"""PodGroups that are made of workloads pass the checks that PodGroups of users pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.objects.findings import Allowed
from admission.objects.podgroup import judge_group
from podgrouper.core.answers import Group
from podgrouper.core.grouping import group
from tests.podgrouper.core.test_kinds import ROWS, grove
from tests.podgrouper.objects import chained


@pytest.mark.parametrize(("bottom", "owners"), [row[1:3] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_group_of_each_kind_is_allowed_in_silence(bottom: dict[str, Any], owners: list[dict[str, Any]]) -> None:
    made = group(*chained(bottom, *owners))
    assert isinstance(made, Group)
    assert judge_group(made.pod_group, old=None) == Allowed()


def test_a_group_of_grove_is_allowed_in_silence() -> None:
    bottom, gang, read = grove()
    made = group(bottom, msgspec.structs.replace(read, named={("scheduler.grove.io", "PodGang", "gang"): gang}))
    assert isinstance(made, Group)
    assert judge_group(made.pod_group, old=None) == Allowed()

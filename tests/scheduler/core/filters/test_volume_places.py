"""Where bound volumes let their pods be."""

from __future__ import annotations

import pytest

from scheduler.core.model.pod_class import Constraints, Requirement, Term, VolumeRule
from tests.scheduler.core.filters.judging import reason_of
from tests.scheduler.core.objects import node
from wire import names

_IN_A = VolumeRule(zones=((names.ZONE_LABEL, ("a", "b")),))
_OLD = VolumeRule(zones=((names.OLD_ZONE_LABEL, ("a",)),))
_ON_SSD = VolumeRule(terms=(Term((Requirement("disk", "In", ("ssd",)),), ()),))
_ON_N1 = VolumeRule(terms=(Term((), (Requirement("metadata.name", "In", ("n1",)),)),))
_NOWHERE = VolumeRule(terms=())


@pytest.mark.parametrize(
    ("rules", "labels", "expected"),
    [
        ((_IN_A,), {names.ZONE_LABEL: "a"}, ""),
        ((_IN_A,), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_IN_A,), {}, ""),
        ((_IN_A,), {names.REGION_LABEL: "r"}, "volume-zone"),
        ((_OLD,), {names.ZONE_LABEL: "a"}, ""),
        ((_OLD,), {names.OLD_ZONE_LABEL: "a", names.ZONE_LABEL: "c"}, ""),
        ((_OLD,), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_IN_A, _ON_SSD), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_ON_SSD,), {"disk": "ssd"}, ""),
        ((_ON_SSD,), {"disk": "hdd"}, "volume-affinity"),
        ((_ON_SSD, _ON_N1), {"disk": "ssd"}, ""),
        ((_ON_N1, _NOWHERE), {}, "volume-affinity"),
    ],
)
def test_a_node_is_out_where_a_volume_can_not_be_used(
    rules: tuple[VolumeRule, ...], labels: dict[str, str], expected: str
) -> None:
    assert reason_of(Constraints(volumes=rules), node("n1", labels=labels)) == expected

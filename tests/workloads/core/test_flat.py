from __future__ import annotations

import pytest

from wire.core import ObjectMeta
from wire.crds.podgroup import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint
from workloads.core.flat import flattened

LEAVES = [SubGroup(name="a-0", parent="a", min_member=2), SubGroup(name="a-1", parent="a", min_member=2)]
ALONE = SubGroup(name="b", min_member=1)


def tree(*parts: SubGroup, minimum: int | None = None) -> PodGroup:
    return PodGroup(metadata=ObjectMeta(name="g"), spec=PodGroupSpec(min_sub_group=minimum, sub_groups=list(parts)))


@pytest.mark.parametrize("minimum", [None, 2])
@pytest.mark.parametrize("below", [None, 2])
def test_a_tree_in_which_all_is_needed_is_its_leaves(minimum: int | None, below: int | None) -> None:
    made = flattened(tree(SubGroup(name="a", min_sub_group=below), *LEAVES, ALONE, minimum=minimum))
    assert (made.spec.min_member, made.spec.min_sub_group) == (5, None)
    assert [(part.name, part.parent, part.min_member) for part in made.spec.sub_groups or ()] == [
        ("a-0", None, 2),
        ("a-1", None, 2),
        ("b", None, 1),
    ]


@pytest.mark.parametrize(
    "group",
    [
        tree(SubGroup(name="a", min_sub_group=2), *LEAVES, ALONE, minimum=1),
        tree(SubGroup(name="a", min_sub_group=1), *LEAVES, ALONE, minimum=2),
        tree(SubGroup(name="a", topology_constraint=TopologyConstraint(required_topology_level="rack")), *LEAVES),
        tree(ALONE),
        PodGroup(spec=PodGroupSpec(min_member=4)),
    ],
)
def test_what_says_more_than_its_leaves_stays_as_it_is(group: PodGroup) -> None:
    assert flattened(group) is group

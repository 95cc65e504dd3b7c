"""The same pods once for kube-scheduler and once for Moorage: what one binds the other binds, or both say why not.

Snapshots of the oracle's generator, without volumes and as far as the API server takes their pods. `make test-all` runs
a slice, `make nightly` all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from tests.e2e.bare import Bare, bare, two_schedulers
from tests.e2e.besides import beside, difference
from tests.whole import IS_WHOLE
from tools.cluster.plane import ControlPlane
from tools.kubeoracle.drawing.snapshot import NAMESPACES

pytestmark = pytest.mark.cluster
_SLICE: Final = 10
#: About one snapshot in five has volumes, or a pod that the API server refuses: 260 make 200.
_SLICES: Final = 26 if IS_WHOLE else 3


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with two_schedulers() as made:
        yield made


@pytest.fixture(scope="module")
async def cluster(plane: ControlPlane) -> AsyncIterator[Bare]:
    async with bare(plane) as made:
        for name, team in NAMESPACES.items():
            await made.namespace(name, team=team)
        yield made


@pytest.mark.parametrize("number", range(_SLICES))
async def test_both_bind_a_pod_or_say_the_same_of_as_many_nodes(cluster: Bare, number: int) -> None:
    found = {seed: await beside(cluster, seed) for seed in range(number * _SLICE, (number + 1) * _SLICE)}
    compared = {seed: each for seed, each in found.items() if each is not None}
    assert {seed: each.difference for seed, each in compared.items() if each.difference} == {}
    assert len(compared) >= _SLICE // 2


_BOUND, _NOWHERE = (
    ("node-1", ""),
    ("", "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available."),
)
_OURS = "no nodes with enough resources were found: "
_SPREAD = "node(s) didn't match pod topology spread constraints"


@pytest.mark.parametrize(
    ("theirs", "ours", "is_same"),
    [
        (_BOUND, ("node-0", ""), True),
        (_BOUND, _NOWHERE, False),
        (_NOWHERE, _BOUND, False),
        (_NOWHERE, ("", f"{_OURS}2 node(s) didn't have enough resources: CPU cores."), True),
        (_NOWHERE, ("", f"{_OURS}1 node(s) didn't have enough resources: CPU cores."), False),
        (_NOWHERE, ("", f"{_OURS}2 node(s) didn't have enough resources: memory."), False),
        (_NOWHERE, ("", f"{_OURS}1 {_SPREAD}. \n1 node(s) didn't have enough resources: CPU cores."), True),
        (("", f"0/2 nodes are available: 2 {_SPREAD}."), ("", f"{_OURS}1 {_SPREAD}."), False),
    ],
)
def test_verdicts_are_the_same_by_what_they_count(
    theirs: tuple[str, str], ours: tuple[str, str], is_same: bool
) -> None:
    assert (difference(theirs, ours) == "") is is_same

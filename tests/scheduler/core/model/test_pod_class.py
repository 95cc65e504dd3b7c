"""What a pod asks, in each of the ways in which it may be given."""

from __future__ import annotations

import msgspec
import pytest

from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.translation import Place
from scheduler.core.model.pod_class import Constraints, Demand, PodClass
from tests.scheduler.core.objects import NANO
from wire import names

_NET = "example.com/net"


def _asking(*asks: Ask) -> GpuRequest:
    return GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0, "main"), asks),))


HALF, TENTH = _asking(FractionAsk(NANO // 2)), _asking(FractionAsk(NANO // 10))


@pytest.mark.parametrize(
    ("resources", "gpus", "extended", "claimed"),
    [
        pytest.param((), 2, ((_NET, 3),), (), id="none"),
        pytest.param((names.GPU_RESOURCE,), 0, ((_NET, 3),), ((names.GPU_RESOURCE, 2),), id="whole GPUs"),
        pytest.param((_NET,), 2, (), ((_NET, 3),), id="another resource"),
        pytest.param((_NET, names.GPU_RESOURCE), 0, (), ((_NET, 3), (names.GPU_RESOURCE, 2)), id="both, by name"),
        pytest.param(("example.com/other",), 2, ((_NET, 3),), (), id="one that is not asked"),
    ],
)
def test_what_claims_give_is_not_asked_of_the_node_and_still_counted(
    resources: tuple[str, ...], gpus: int, extended: tuple[tuple[str, int], ...], claimed: tuple[tuple[str, int], ...]
) -> None:
    asked = Demand(cpu_milli=100, gpus=2, extended=((_NET, 3),))
    assert asked.by_claim(resources) == Demand(cpu_milli=100, gpus=gpus, extended=extended, claimed=claimed)


def test_memory_is_counted_by_bytes_though_it_is_asked_in_mib() -> None:
    assert Demand(mem_mib=2, mem_rounding_bytes=1).mem_bytes == 2 * 2**20 - 1


def test_a_request_without_places_has_a_way_for_each_alternative_on_all_nodes() -> None:
    asked = PodClass(request=HALF, alternatives=(TENTH,))
    assert [way.request for way in asked.ways()] == [HALF, TENTH]
    assert asked.all_constraints() == (Constraints(),)


def test_each_way_is_for_nodes_of_its_place() -> None:
    here, there = Place(labels=(("zone", "a"),)), Place(labels=(("zone", "b"),))
    asked = PodClass(request=HALF, alternatives=(TENTH, HALF), places=(here, there, here))
    assert [(way.request, way.constraints.place) for way in asked.ways()] == [
        (HALF, here),
        (TENTH, there),
        (HALF, here),
    ]
    assert all(not way.places and not way.alternatives for way in asked.ways())
    assert asked.all_constraints() == tuple(
        msgspec.structs.replace(Constraints(), place=place) for place in (here, there)
    )


def test_profiles_are_those_of_all_ways() -> None:
    slices = _asking(FractionAsk(NANO // 2, profile="1g.10gb"))
    assert PodClass(request=HALF, alternatives=(slices,)).profiles() == {"1g.10gb"}

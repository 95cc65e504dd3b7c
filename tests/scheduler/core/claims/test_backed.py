"""What a claim asks for extended resources, and which request serves which container: kube-scheduler's behaviour."""

from __future__ import annotations

import pytest

from scheduler.core.claims.requests import backed, claim_to_make
from scheduler.core.model.device_requests import ExtendedAsk

_GPU, _NIC = "nvidia.com/gpu", "example.com/nic"
_CLASSES = {_GPU: "gpu", _NIC: "nic"}


def _ask(index: int, amount: int = 1, *, of: str = _GPU, place: int = 0, brief: bool = False) -> ExtendedAsk:
    return ExtendedAsk(container=f"c{index}", index=index, resource=of, place=place, amount=amount, is_brief=brief)


@pytest.mark.parametrize(
    ("asks", "requests", "mappings"),
    [
        ([_ask(0, 2)], {"container-0-request-0": ("gpu", 2)}, ["c0 container-0-request-0"]),
        (
            [_ask(0), _ask(1, 3)],
            {"container-0-request-0": ("gpu", 1), "container-1-request-0": ("gpu", 3)},
            ["c0 container-0-request-0", "c1 container-1-request-0"],
        ),
        # Two resources of one container: by name, and so are the requests.
        (
            [_ask(0, 2, of=_NIC, place=1), _ask(0, 1, place=2)],
            {"container-0-request-1": ("nic", 2), "container-0-request-2": ("gpu", 1)},
            ["c0 container-0-request-1", "c0 container-0-request-2"],
        ),
        # What ends before others start uses their devices...
        (
            [_ask(0, 2, brief=True), _ask(1, 1), _ask(2, 3)],
            {"container-1-request-0": ("gpu", 1), "container-2-request-0": ("gpu", 3)},
            [
                "c1 container-1-request-0",
                "c2 container-2-request-0",
                "c0 container-1-request-0",
                "c0 container-2-request-0",
            ],
        ),
        # ... those of the first ones that are enough...
        (
            [_ask(0, 1, brief=True), _ask(1, 1), _ask(2, 3)],
            {"container-1-request-0": ("gpu", 1), "container-2-request-0": ("gpu", 3)},
            ["c1 container-1-request-0", "c2 container-2-request-0", "c0 container-1-request-0"],
        ),
        # ... not those of a sidecar before it...
        (
            [_ask(0, 1), _ask(1, 1, brief=True)],
            {"container-0-request-0": ("gpu", 1), "container-1-request-0": ("gpu", 1)},
            ["c0 container-0-request-0", "c1 container-1-request-0"],
        ),
        # ... and what it lacks beyond them is asked for once, for the one that lacks most.
        (
            [_ask(0, 4, brief=True), _ask(1, 6, brief=True), _ask(2, 1)],
            {"container-1-request-0": ("gpu", 5), "container-2-request-0": ("gpu", 1)},
            [
                "c2 container-2-request-0",
                "c0 container-2-request-0",
                "c0 container-1-request-0",
                "c1 container-2-request-0",
                "c1 container-1-request-0",
            ],
        ),
        # One that a later container has enough for needs no more, though another one before it does.
        (
            [_ask(0, 3, brief=True), _ask(1, 2, brief=True), _ask(2, 2)],
            {"container-0-request-0": ("gpu", 1), "container-2-request-0": ("gpu", 2)},
            [
                "c2 container-2-request-0",
                "c0 container-2-request-0",
                "c0 container-0-request-0",
                "c1 container-2-request-0",
            ],
        ),
        # Of those that lack the same it is the first.
        (
            [_ask(0, 2, brief=True), _ask(1, 2, brief=True)],
            {"container-0-request-0": ("gpu", 2)},
            ["c0 container-0-request-0", "c1 container-0-request-0"],
        ),
        # Names are sorted as text, as the API has no order of its own.
        (
            [_ask(2), _ask(10)],
            {"container-10-request-0": ("gpu", 1), "container-2-request-0": ("gpu", 1)},
            ["c2 container-2-request-0", "c10 container-10-request-0"],
        ),
    ],
)
def test_each_container_gets_its_devices_by_requests(
    asks: list[ExtendedAsk], requests: dict[str, tuple[str, int]], mappings: list[str]
) -> None:
    *_, way = backed(asks, _CLASSES)
    made = claim_to_make(asks, way)
    assert {name: (cls, count) for name, cls, count in made.requests} == requests
    assert [name for name, _, _ in made.requests] == sorted(requests)
    assert sorted(f"{each.container} {each.request}" for each in made.mappings) == sorted(mappings)
    assert [(each.name, each.device_class, each.count) for each in way.need.asks()] == [*made.requests]


def test_the_status_names_containers_that_last_before_others() -> None:
    asks = [_ask(0, 1, brief=True), _ask(1)]
    (way,) = backed(asks, _CLASSES)
    assert [each.container for each in claim_to_make(asks, way).mappings] == ["c1", "c0"]


def test_there_is_a_way_for_each_set_of_resources_that_a_node_may_lack() -> None:
    asks = [_ask(0), _ask(0, of=_NIC, place=1), _ask(0, of="example.com/unmapped", place=2)]
    ways = backed(asks, _CLASSES)
    assert {way.resources for way in ways} == {(_GPU,), (_NIC,), (_NIC, _GPU)}
    assert {claim_to_make(asks, way).resources for way in ways} == {frozenset(way.resources) for way in ways}


def test_many_resources_come_by_a_claim_together_or_not_at_all() -> None:
    asks = [_ask(0, of=f"example.com/r{number}", place=number) for number in range(4)]
    (way,) = backed(asks, {each.resource: "c" for each in asks})
    assert len(way.resources) == 4


def test_resources_without_a_class_have_no_way() -> None:
    assert backed([_ask(0)], {}) == ()

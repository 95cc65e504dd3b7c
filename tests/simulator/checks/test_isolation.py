"""S8: what a user writes frees nothing on paper, and what was asked is what is charged."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.nodes.device_manager import Device
from tests.simulator.made_up import Story, granted, granted_memory, pod, reservation, share, version
from tests.steps import counted

HALF = 500_000_000


def bound(**more: Any) -> Story:
    """A reservation with a pod in its book, which is bound."""
    story = Story().sees(reservation("r", "g", {"uid-p": HALF}))
    return story.sees(version(granted("p", "g", **more), 5))


def test_a_pod_bound_from_its_book_holds() -> None:
    assert bound().broken() == set()


def test_a_pod_bound_without_being_in_the_book_breaks_s8() -> None:
    assert Story().sees(reservation("r", "g", {})).sees(granted("p", "g")).broken() == {"S8"}


def test_a_pod_charged_less_than_it_asked_breaks_s8() -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": HALF - 1}))
    assert story.sees(granted("p", "g", nano=HALF - 1)).broken() == {"S8"}


@pytest.mark.parametrize(
    ("mem_mib", "nano", "broken"),
    [
        (8192, 333_333_333, set()),
        (8192, 333_333_334, set()),
        (8192, 333_333_332, {"S8"}),
        (12288, 500_000_000, set()),
        (12288, 499_999_999, {"S8"}),
    ],
    ids=[
        "less than a nano short",
        "rounded up, by an older version",
        "more than that",
        "what divides",
        "short of that",
    ],
)
def test_memory_may_be_charged_short_of_what_it_is_by_less_than_a_nano(
    mem_mib: int, nano: int, broken: set[str]
) -> None:
    story = Story(cards=(Device(0, "GPU-a", 24576),)).sees(reservation("r", "g", {"uid-p": nano}))
    assert story.sees(granted_memory("p", "g", mem_mib, nano)).broken() == broken


@pytest.mark.parametrize(("nano", "broken"), [(500_000_954, set()), (500_000_953, {"S8"})])
def test_on_a_card_of_more_than_512_gib_memory_is_charged_in_full(nano: int, broken: set[str]) -> None:
    story = Story(cards=(Device(0, "GPU-a", 512 * 1024 + 1),)).sees(reservation("r", "g", {"uid-p": nano}))
    assert story.sees(granted_memory("p", "g", 262145, nano)).broken() == broken


@pytest.mark.parametrize(("book", "broken"), [({}, {"S8"}), ({"uid-p": HALF - 1}, {"S8"}), ({"uid-p": HALF}, set())])
def test_a_book_holds_whoever_uses_its_device(book: dict[str, int], broken: set[str]) -> None:
    assert bound().sees(reservation("r", "g", book)).broken() == broken


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ({"compute_percent": 50}, {}, {"S8"}),
        ({"ofALaterVersion": [1]}, {}, {"S8"}),
        ({}, {"mode": "mps"}, {"S8"}),
        ({"mode": "mps"}, {"mode": "mps", "rv": "2", "since": 7}, set()),
        ({"mode": "mps"}, {"attempt": "b"}, set()),
    ],
    ids=["a field is lost", "one that nobody here knows", "one comes", "it is renewed", "it is of another attempt"],
)
def test_an_entry_keeps_what_it_says_while_it_is_in_the_book(
    before: dict[str, Any], after: dict[str, Any], broken: set[str]
) -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": HALF}, **before))
    assert story.sees(version(reservation("r", "g", {"uid-p": HALF}, **after), 5)).broken() == broken


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_book_may_forget_who_has_ended(phase: str) -> None:
    assert bound().sees(granted("p", "g", phase=phase)).sees(reservation("r", "g", {})).broken() == set()


def test_a_book_holds_who_is_to_go_though_its_containers_are_told_to_have_ended() -> None:
    """Kubelet says so of containers that it is just starting anew."""
    told = granted("p", "g", phase="Running", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    told["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": {"exitCode": 255}}}]
    assert bound().sees(told).sees(reservation("r", "g", {})).broken() == {"S8"}


def test_a_book_may_forget_who_is_gone() -> None:
    story = bound().sees(granted("p", "g"), event="DELETED")
    assert story.sees(reservation("r", "g", {})).broken() == set()


def test_a_reservation_made_anew_without_its_tenants_breaks_s8() -> None:
    story = bound().sees(reservation("r", "g", {"uid-p": HALF}), event="DELETED")
    assert story.sees(reservation("again", "g", {})).broken() == {"S8"}


def test_an_ask_changed_after_binding_breaks_s8() -> None:
    assert bound().sees(version(granted("p", "g", "0.1", nano=HALF), 6)).broken() == {"S8"}


def test_an_ask_changed_before_binding_holds() -> None:
    story = Story().sees(reservation("r", "g", {"uid-p": HALF})).sees(share("p", "", "0.1", node=""))
    assert story.sees(granted("p", "g")).broken() == set()


@pytest.mark.parametrize(("user", "broken"), [("somebody", {"S8"}), ("binder", set())])
def test_protected_keys_of_bound_pods_are_written_by_us_only(user: str, broken: set[str]) -> None:
    story = bound().writes("patch", "pods", "p", user=user, version=6)
    assert story.sees(version(granted("p", "g", annotations={"moorage.dev/gpu-portion": "0.9"}), 6)).broken() == broken


def test_other_keys_are_everybodys() -> None:
    story = bound().writes("patch", "pods", "p", user="somebody", version=6)
    assert story.sees(version(granted("p", "g", annotations={"example.com/note": "1"}), 6)).broken() == set()


@pytest.mark.parametrize("moves", [False, True])
def test_a_reservation_that_comes_late_is_judged_by_the_pods_of_its_node(*, moves: bool) -> None:
    """The tenant has its grant before the reservation's first version is seen, with an empty book."""
    tenant = granted("p", "g")
    story = Story().sees({**tenant, "spec": {**tenant["spec"], "nodeName": "elsewhere"}} if moves else tenant)
    if moves:
        story.sees(tenant)  # S5, too
    assert story.sees(reservation("r", "g", {})).broken() == ({"S5", "S8"} if moves else {"S8"})


def test_pods_of_other_nodes_are_not_looked_at_for_a_new_reservation() -> None:
    def cost(elsewhere: int) -> int:
        story = Story()
        for number in range(elsewhere):
            story.sees(pod(f"p{number}", node="elsewhere"))
        with counted() as steps:
            story.sees(reservation("r", "g", {}))
        return steps.taken

    assert cost(300) <= 1.2 * cost(1)

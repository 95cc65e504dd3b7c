from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from simulator.checks.checker import BIND_REQUESTS, CONFIG_MAPS, POD_GROUPS, PODS
from simulator.nodes.device_manager import Device
from tests.simulator.made_up import Story, granted, granted_memory, pod, reservation, share, whole

GRANT = "moorage.dev/grant"


def shared_device(*tenants: dict[str, Any], **settings: Any) -> Story:
    """A reservation of group g holds GPU-a, and the tenants run on it."""
    story = Story(**settings).sees(reservation("r", "g")).holds("r", "GPU-a")
    for tenant in tenants:
        story.sees(tenant).starts(tenant["metadata"]["name"], "GPU-a")
    return story


@pytest.mark.parametrize(
    "tenants",
    [
        [share("p", "g", "0.5"), share("q", "g", "0.501")],
        [share("p", "g", "0.5"), pod("q", annotations={"gpu-memory": "501"}, labels={"runai-gpu-group": "g"})],
        [share(f"p{i}", "g", "0.333") for i in range(4)],
    ],
    ids=["fractions", "memory of this card", "many"],
)
def test_more_than_a_device_breaks_s1(tenants: list[dict[str, Any]]) -> None:
    assert shared_device(*tenants).broken() == {"S1"}


THIRDS_MIB = 24576
"""A card of which no third is a whole number of nano-GPU."""


def on_thirds(*tenants: dict[str, Any], runs: bool) -> Story:
    """Tenants of one such card, that a ledger has room for: bound there, and running if they ``run``."""
    nanos = {raw["metadata"]["uid"]: json.loads(raw["metadata"]["annotations"][GRANT]) for raw in tenants}
    book = {uid: grant["devices"][0]["nano"] for uid, grant in nanos.items()}
    assert sum(book.values()) <= 10**9
    story = Story(cards=(Device(0, "GPU-a", THIRDS_MIB),)).sees(reservation("r", "g", book)).holds("r", "GPU-a")
    for tenant in tenants:
        story.sees(tenant)
        if runs:
            story.starts(tenant["metadata"]["name"], "GPU-a")
    return story


@pytest.mark.parametrize("runs", [True, False], ids=["running", "promised"])
@pytest.mark.parametrize(
    ("asked", "broken"),
    [
        pytest.param([8192, 8192, 8192], set(), id="all of it"),
        pytest.param([8192, 8192, 8193], {"S1"}, id="a MiB more"),
        pytest.param([8192, 8192, "0.333333334"], set(), id="with a fraction that is all the rest"),
        pytest.param([8191, 8192, "0.3333740233"], set(), id="with one that is a MiB more, and a MiB less"),
        pytest.param([8192, 8192, "0.3333740235"], {"S1"}, id="with one that is a MiB more"),
        pytest.param(["0.333333333"] * 3, set(), id="fractions"),
        pytest.param(["0.333333333", "0.333333333", "0.333333335"], {"S1"}, id="fractions, a nano more"),
        pytest.param([24576, "0.000000001"], {"S1"}, id="a nano more than all of it"),
    ],
)
def test_memory_and_fractions_together_never_pass_the_card(
    asked: list[int | str], broken: set[str], runs: bool
) -> None:
    """Whatever they are charged: what asks for too much is charged a nano here, as a ledger with a bug might."""
    nanos = [333_333_333] * len(asked) if not broken else [1] * len(asked)
    tenants = [
        granted_memory(f"p{i}", "g", ask, nano) if isinstance(ask, int) else granted(f"p{i}", "g", ask, nano=nano)
        for i, (ask, nano) in enumerate(zip(asked, nanos, strict=True))
    ]
    assert on_thirds(*tenants, runs=runs).broken() - {"S8"} == broken


def test_a_claim_lowered_after_binding_counts_as_it_was_and_breaks_s8() -> None:
    first, lowered = share("p", "g", "0.9"), share("p", "g", "0.1")
    story = shared_device(share("q", "g", "0.5"))
    story.sees(first).sees(lowered).starts("p", "GPU-a")
    assert story.broken() == {"S1", "S8"}


def test_a_device_promised_twice_breaks_s1_before_anything_runs() -> None:
    promise = {"moorage.dev/visible-devices.c0": "GPU-a"}
    story = Story()
    story.sees(share("p", "g", "0.6", annotations=promise)).sees(share("q", "g", "0.6", annotations=promise))
    assert story.broken() == {"S1"}


def test_a_book_above_one_device_breaks_s1() -> None:
    assert Story().sees(reservation("r", "g", {"p": 600_000_000, "q": 400_000_001})).broken() == {"S1"}


def test_a_container_that_still_runs_counts_though_its_pod_is_gone() -> None:
    gone = share("p", "g", "0.6")
    story = shared_device(gone).sees(gone, event="DELETED")
    assert story.sees(share("q", "g", "0.6")).starts("q", "GPU-a").broken() == {"S1"}


@pytest.mark.parametrize(("seconds", "broken"), [(35.0, set()), (34.0, {"S1"})])
def test_who_runs_on_after_a_forced_deletion_counts_for_its_grace_period(seconds: float, broken: set[str]) -> None:
    gone = share("p", "g", "0.6")
    story = shared_device(gone).sees(gone, event="DELETED").after(seconds)
    assert story.sees(share("q", "g", "0.6")).starts("q", "GPU-a").broken() == broken


def test_a_device_in_two_groups_breaks_s2() -> None:
    story = shared_device(share("p", "g", "0.2"))
    story.frees("r").sees(reservation("s", "h")).holds("s", "GPU-a")
    assert story.broken() == {"S2"}


@pytest.mark.parametrize(
    ("first", "second", "broken"),
    [
        ("mps", "mps", set()),
        ("mps", "", set()),
        ("", "mps", set()),
        ("mps", "time-slicing", {"S2"}),
        ("sm-sharing", "mps", {"S2"}),
    ],
)
def test_pods_of_two_modes_on_one_device_break_s2(first: str, second: str, broken: set[str]) -> None:
    def running(name: str, mode: str) -> dict[str, Any]:
        said = {"version": 1, "dialect": "hami", "wishes": {"mode": mode} if mode else {}}
        given = {"moorage.dev/gpu": json.dumps(said), "moorage.dev/visible-devices.c0": "GPU-a"}
        return share(name, "g", "0.4", annotations=given)

    assert Story().sees(running("p", first)).sees(running("q", second)).broken() == broken


@pytest.mark.parametrize(
    ("first", "second", "broken"), [(60, 40, set()), (60, 41, {"S1"}), (100, 0, set()), (100, 1, {"S1"})]
)
def test_more_than_all_of_the_compute_that_is_promised_breaks_s1(first: int, second: int, broken: set[str]) -> None:
    def asking(name: str, percent: int) -> dict[str, Any]:
        asks = [{"container": "c0", "nano": 400_000_000, "computePercent": percent}]
        said = {"version": 1, "dialect": "hami", "asks": asks}
        given = {"moorage.dev/gpu": json.dumps(said), "moorage.dev/visible-devices.c0": "GPU-a"}
        return share(name, "g", "0.4", annotations=given)

    assert Story().sees(asking("p", first)).sees(asking("q", second)).broken() == broken


def test_a_group_with_two_devices_breaks_s2() -> None:
    story = shared_device(share("p", "g", "0.2"))
    assert story.sees(reservation("s", "g")).holds("s", "GPU-b").broken() == {"S2"}


def test_a_whole_gpu_that_is_still_shared_breaks_s2() -> None:
    story = shared_device(share("p", "g", "0.2"))
    story.frees("r").sees(whole("w")).holds("w", "GPU-a").starts("w", "GPU-a", assigned=("GPU-a",))
    assert story.broken() == {"S2"}


@pytest.mark.parametrize(("seconds", "broken"), [(4.0, set()), (6.0, {"S2"})])
def test_after_the_loss_of_a_reservation_a_stranger_is_borne_for_the_window(seconds: float, broken: set[str]) -> None:
    story = shared_device(share("p", "g", "0.2"), loss_window_s=5.0)
    story.frees("r").sees(whole("w")).holds("w", "GPU-a").starts("w", "GPU-a", assigned=("GPU-a",))
    story.after(seconds).sees(pod("somebody", node=""))
    assert story.broken() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(4.0, set()), (6.0, {"S2"})])
def test_the_window_is_there_for_a_pod_that_was_bound_but_does_not_run_yet(seconds: float, broken: set[str]) -> None:
    coming = share("p", "g", "0.2", annotations={"moorage.dev/visible-devices.c0": "GPU-a"})
    story = shared_device(loss_window_s=5.0).sees(coming).frees("r").sees(whole("w"))
    story.holds("w", "GPU-a").starts("w", "GPU-a", assigned=("GPU-a",)).starts("p", "GPU-a")
    assert story.after(seconds).sees(pod("somebody", node="")).broken() == broken


@pytest.mark.parametrize(
    ("asker", "seen", "assigned"),
    [
        (share("p", "g"), (), ()),
        (share("p", "g"), ("GPU-b",), ()),
        (share("p", "g"), ("GPU-a", "GPU-b"), ()),
        (share("p", "other"), ("GPU-a",), ()),
        (pod("p"), ("GPU-b",), ()),
        (whole("p"), ("GPU-b", "GPU-c"), ("GPU-b",)),
        (whole("p"), ("GPU-c",), ("GPU-b",)),
    ],
    ids=[
        "a share that sees nothing",
        "a share that sees another device",
        "a share that sees too much",
        "a share whose group has no reservation",
        "a container that asked for none",
        "a whole GPU and one more",
        "another whole GPU",
    ],
)
def test_a_wrong_view_breaks_s3(asker: dict[str, Any], seen: tuple[str, ...], assigned: tuple[str, ...]) -> None:
    story = shared_device().sees(asker).starts("p", *seen, assigned=assigned)
    assert "S3" in story.broken()


@pytest.mark.parametrize(
    ("namespace", "asker", "broken"),
    [
        ("kube-system", pod, set()),
        ("kai-scheduler", pod, set()),
        ("kube-public", pod, {"S3"}),
        ("kube-system", lambda name: share(name, ""), {"S3"}),
    ],
)
def test_where_admission_is_not_asked_an_image_that_shows_all_gpus_shows_them(
    namespace: str, asker: Callable[[str], dict[str, Any]], broken: set[str]
) -> None:
    raw = asker("p")
    raw["metadata"]["namespace"] = namespace
    assert shared_device().sees(raw).starts("p", "GPU-b").broken() & {"S3"} == broken


def test_a_container_beside_the_one_that_asked_must_see_none() -> None:
    two = share("p", "g", containers=[{"name": "main"}, {"name": "aside"}])
    story = shared_device(two)
    assert story.starts("p", container="aside").broken() == set()
    story = shared_device(two)
    assert story.starts("p", "GPU-a", container="aside").broken() == {"S3"}


@pytest.mark.parametrize(
    ("annotations", "container"),
    [
        ({}, "main"),
        ({"gpu-fraction-container-name": "aside"}, "aside"),
        ({"gpu-fraction-container-name": "prepare", "gpu-fraction-container-type": "InitContainer"}, "prepare"),
        ({"gpu-fraction-container-type": "InitContainer"}, "prepare"),
    ],
)
def test_the_named_container_gets_the_share(annotations: dict[str, str], container: str) -> None:
    raw = share("p", "g", annotations=annotations, containers=[{"name": "main"}, {"name": "aside"}])
    raw["spec"]["initContainers"] = [{"name": "prepare"}]
    story = shared_device().sees(raw)
    for name in ("prepare", "main", "aside"):
        story.starts("p", *(["GPU-a"] if name == container else []), container=name)
    assert story.broken() == set()


def test_a_container_of_another_scheduler_is_not_judged_by_what_it_sees() -> None:
    assert Story().sees(pod("p", scheduler="default-scheduler")).starts("p", "GPU-a").broken() == set()


def gang(minimum: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "gang", "uid": "uid-gang"}, "spec": {"minMember": minimum}}


def member(name: str, **more: Any) -> dict[str, Any]:
    return pod(name, annotations={"pod-group-name": "gang"}, **more)


def test_a_gang_bound_in_part_at_the_end_breaks_s4() -> None:
    story = Story().sees(gang(3), kind=POD_GROUPS).sees(member("p")).sees(member("q")).sees(member("r", node=""))
    assert story.broken() == {"S4"}


def test_a_gang_bound_in_part_for_too_long_breaks_s4_though_it_is_whole_later() -> None:
    story = Story(gang_grace_s=5.0).sees(gang(2), kind=POD_GROUPS).sees(member("p"))
    assert story.after(6.0).sees(member("q")).broken() == {"S4"}


@pytest.mark.parametrize(
    ("parts", "broken"),
    [
        ([], set()),
        (["a"], {"S4"}),
        (["a", "a"], set()),
        (["a", "b"], {"S4"}),
        (["a", "b", "b"], {"S4"}),
        (["b", "b", "b"], set()),
        (["a", "a", "b"], set()),
        (["a", "a", "z"], set()),
        (["z", "z", "z"], {"S4"}),
    ],
)
def test_a_gang_that_can_choose_is_whole_when_enough_of_its_sub_groups_are(parts: list[str], broken: set[str]) -> None:
    either = {"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 3}]}
    story = Story().sees({**gang(1), "spec": either}, kind=POD_GROUPS)
    for i, part in enumerate(parts):
        story.sees(member(f"p{i}", labels={"kai.scheduler/subgroup-name": part}))
    assert story.broken() == broken


def test_a_gang_that_contradicts_itself_is_not_judged() -> None:
    spec = {"minMember": 9, "subGroups": [{"name": "a", "parent": "a", "minMember": 2}]}
    assert Story().sees({**gang(1), "spec": spec}, kind=POD_GROUPS).sees(member("p")).broken() == set()


def test_a_gang_whose_rest_was_told_to_end_is_released_however_long_its_machine_takes() -> None:
    story = Story(gang_grace_s=5.0).sees(gang(2), kind=POD_GROUPS).sees(member("p"))
    leaving = member("p")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert story.after(4.0).sees(leaving).after(60.0).sees(pod("other")).broken() == set()


def test_a_gang_whose_failed_member_leaves_it_short_breaks_s4() -> None:
    story = Story().sees(gang(2), kind=POD_GROUPS).sees(member("p", phase="Failed")).sees(member("q"))
    assert story.broken() == {"S4"}


def test_records_wait_for_their_pods_and_are_judged_in_their_order() -> None:
    story = Story().holds("r", "GPU-a").starts("p", "GPU-a").starts("q", "GPU-a").stops("p").stops("q")
    story.sees(share("q", "g", "0.6")).sees(share("p", "g", "0.6")).sees(reservation("r", "g"))
    assert story.broken() == {"S1"}


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (PODS, reservation("r", "g")),
        (PODS, pod("p", metadata={"finalizers": ["moorage.dev/book"]})),
        (PODS, pod("team-p", namespace="kai-scale-adjust")),
        (BIND_REQUESTS, {"metadata": {"uid": "u", "name": "p", "namespace": "team"}}),
        (CONFIG_MAPS, {"metadata": {"uid": "u", "name": "p-x7k2p9q-shared-gpu-0", "namespace": "team"}}),
    ],
)
def test_what_is_left_after_all_work_breaks_s9(kind: str, left: dict[str, Any]) -> None:
    story = Story()
    story.checker.leftovers({kind: [left]}, at_s=1.0)
    assert story.broken() == {"S9"}


def test_the_report_names_the_first_violation_and_counts_the_others() -> None:
    story = Story().sees(pod("p")).starts("p", "GPU-a").sees(pod("q")).starts("q", "GPU-b")
    story.broken()
    report = story.checker.report
    assert report["S3"] == "at 0.000 s: container main of team/p sees GPU-a, but it asked for none (and 1 more)"
    assert report["S1"] == "held"

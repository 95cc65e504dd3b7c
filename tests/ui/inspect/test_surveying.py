"""From objects to what is shown: who asked what in whose words, what they got, and why they wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.bound_pod import ClaimedShare
from gpu.dialects.settings import DialectSettings
from gpu.record import render
from gpu.translate import combine
from gpu.translation import Translation
from tests.scheduler.core.objects import NANO, bind_request, bound, by_claim, changed, ended, node, pod, reservation
from ui.inspect.survey import Found, matters, survey
from ui.inspect.values import GivenView, Inspection, PodView, WaitView
from wire import names
from wire.core import Condition, ContainerState, ContainerStatus, NodeAddress, Pod
from wire.crds.bindrequest import BindRequest

HALF = NANO // 2
CARD_MIB = 81920
NODE = node(gpus=4, mem_mib=CARD_MIB)


def seen(*objects: Any, namespace: str = "", **found: Any) -> Inspection:
    pods = [each for each in objects if isinstance(each, Pod)]
    requests = [each for each in objects if isinstance(each, BindRequest)]
    return survey(
        Found(nodes=[NODE], pods=pods, requests=requests, **found), namespaces=(namespace,) if namespace else ()
    )


def only(*objects: Any, **found: Any) -> PodView:
    (view,) = seen(*objects, **found).pods
    return view


def with_status(obj: Pod, **status: Any) -> Pod:
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, **status))


def recorded(limits: dict[str, Any]) -> Pod:
    """A pod as admission leaves it: the words are gone, the record is there."""
    written = pod("foreign", spec={"containers": [{"name": "main", "resources": {"limits": limits}}]})
    made = combine.translate(written, DialectSettings())
    assert isinstance(made, Translation)
    return pod("foreign", annotations={names.GPU_RECORD: render(made)})


@pytest.mark.parametrize(
    ("asking", "dialect", "asks"),
    [
        pytest.param(pod(fraction="0.5"), "kai", ("main: 50% of a GPU",), id="kai"),
        pytest.param(pod(mem=2000), "kai", ("main: 2000 MiB of a GPU",), id="kai-memory"),
        pytest.param(pod(gpus=2), "plugin", ("main: 2 times a whole GPU",), id="whole"),
        pytest.param(
            recorded({"aliyun.com/gpu-mem": "5"}), "aliyun", ("main: 5120 MiB of a GPU",), id="recorded-aliyun"
        ),
        pytest.param(
            recorded({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}),
            "hami",
            ("main: 3000 MiB of a GPU, 30% of its compute",),
            id="recorded-hami",
        ),
    ],
)
def test_a_pod_says_in_whose_words_it_asked(asking: Pod, dialect: str, asks: tuple[str, ...]) -> None:
    view = only(asking)
    assert (view.dialect, view.asks, view.refused) == (dialect, asks, "")
    assert msgspec.json.decode(msgspec.json.encode(view))["record"]["dialect"] == dialect


def test_what_can_not_be_read_is_told_as_admission_tells_it() -> None:
    view = only(pod(fraction="1.5"))
    assert (view.dialect, view.record) == ("", None)
    assert "gpu-fraction" in view.refused
    assert "allowed" in view.refused


def test_a_record_that_is_none_is_told_and_not_passed_over() -> None:
    assert "moorage.dev/gpu" in only(pod(annotations={names.GPU_RECORD: "{}"})).refused


@pytest.mark.parametrize(
    "nobody",
    [
        pytest.param(pod(), id="no-gpu"),
        pytest.param(pod(gpus=1, scheduler="default-scheduler"), id="waits-for-another-scheduler"),
        pytest.param(ended(pod(gpus=1, bound_to="n1")), id="ended"),
        pytest.param(reservation("g"), id="reservation"),
    ],
)
def test_a_pod_that_has_no_part_in_it_is_shown_only_where_it_is_named(nobody: Pod) -> None:
    assert seen(nobody).pods == ()
    assert only(nobody, asked_for=frozenset({nobody.metadata.name})).name == nobody.metadata.name


def test_a_pod_with_a_share_by_a_claim_shows_the_device_and_its_node_who_has_parts_of_it() -> None:
    share = ClaimedShare(driver="gpu.example.com", pool="n1", device="d0", nano=HALF, mem_mib=CARD_MIB, uuid="GPU-9")
    found = seen(by_claim(pod("t", fraction="0.5", bound_to="n1"), share))
    (view,) = found.pods
    (given,) = view.given
    assert (given.device, given.uuid, given.nano, given.mem_mib) == ("gpu.example.com/n1/d0", "GPU-9", HALF, 40960)
    assert (given.group, given.reservation, given.index) == ("", "", -1)
    (shared,) = (each for node in found.nodes for each in node.devices if each.device)
    assert [(each.name, each.nano) for each in shared.tenants] == [("t", HALF)]
    assert msgspec.json.decode(msgspec.json.encode(shared))["device"] == "gpu.example.com/n1/d0"


@pytest.mark.parametrize("nano", [81_380_208, 81_380_209], ids=["charged now", "by an older version, rounded up"])
def test_a_bound_pod_shows_exactly_what_it_was_given_and_how_much_memory_that_is(nano: int) -> None:
    tenant = bound(pod("t", mem=2000), "n1", ("g", nano), uuid="GPU-1")
    card = reservation("g", uuid="GPU-1", mem_mib=24576, book={"uid-t": nano})
    card = changed(card, annotations={**(card.metadata.annotations or {}), names.DEVICE_INDEX: "3"})
    assert only(tenant, card).given == (
        GivenView(group="g", reservation=card.metadata.name, uuid="GPU-1", index=3, nano=nano, mem_mib=2000),
    )


def test_without_its_reservation_the_grant_still_says_which_device_it_is() -> None:
    (given,) = only(bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")).given
    assert (given.uuid, given.index, given.nano, given.mem_mib) == ("GPU-1", -1, HALF, CARD_MIB // 2)


def test_the_index_of_another_device_is_not_the_tenants() -> None:
    moved = reservation("g", uuid="GPU-2")
    moved = changed(moved, annotations={**(moved.metadata.annotations or {}), names.DEVICE_INDEX: "3"})
    (given,) = only(bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"), moved).given
    assert (given.uuid, given.index) == ("GPU-1", -1)


@pytest.mark.parametrize(
    ("asking", "book", "nano"),
    [
        pytest.param(pod("t", fraction="0.5"), None, HALF, id="what-it-asks"),
        pytest.param(pod("t", mem=CARD_MIB // 4), None, NANO // 4, id="memory-that-it-asks"),
        pytest.param(pod("t", fraction="0.5"), {"uid-t": NANO}, NANO, id="what-the-binder-charged-it"),
        pytest.param(pod("t", fraction="half"), None, 0, id="unreadable"),
    ],
)
def test_a_pod_that_kai_bound_has_what_the_book_says_or_what_it_asks(
    asking: Pod, book: dict[str, int] | None, nano: int
) -> None:
    tenant = bound(asking, "n1", ("g", HALF), with_grant=False)
    held = reservation("g", uuid="GPU-1", book=book)
    (given,) = only(tenant, held).given
    assert (given.group, given.uuid, given.nano) == ("g", "GPU-1", nano)
    assert given.mem_mib == CARD_MIB * nano // NANO


def test_of_memory_on_a_card_of_unknown_size_nothing_is_told() -> None:
    tenant = bound(pod("t", mem=2000), "elsewhere", ("g", HALF), with_grant=False)
    (given,) = only(tenant, reservation("g", "elsewhere", uuid="GPU-1")).given
    assert given.nano == 0


UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no nodes")


@pytest.mark.parametrize(
    ("waiting", "why"),
    [
        pytest.param(pod(gpus=1), WaitView(), id="not-looked-at"),
        pytest.param(
            with_status(pod(gpus=1), conditions=[UNSCHEDULABLE]),
            WaitView(reason="Unschedulable", message="no nodes"),
            id="condition",
        ),
        pytest.param(
            pod(fraction="0.5", annotations={names.FENCED_BECAUSE: "ReservationSilent: said nothing"}),
            WaitView(last_failure="ReservationSilent: said nothing"),
            id="last-failure",
        ),
        pytest.param(
            with_status(
                pod(gpus=1, bound_to="n1"),
                container_statuses=[
                    ContainerStatus(name="main", state=ContainerState(waiting={"reason": "ImagePullBackOff"}))
                ],
            ),
            WaitView(reason="ImagePullBackOff"),
            id="image",
        ),
        pytest.param(pod(gpus=1, bound_to="n1", phase="Running"), None, id="runs"),
    ],
)
def test_a_pod_that_does_not_run_says_why(waiting: Pod, why: WaitView | None) -> None:
    assert only(waiting).waits == why


def test_a_pod_whose_node_can_not_hold_it_to_its_wishes_says_so() -> None:
    runs = pod("t", fraction="0.5", bound_to="n1", phase="Running")
    said = Condition(type=names.CONDITION_LIMITS_ENFORCED, status="False", message="no memory cap")
    assert only(with_status(runs, conditions=[said])).not_enforced == "no memory cap"
    assert only(runs).not_enforced == ""


ALIYUNS = pod(spec={"containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "5"}}}]})


def test_a_pod_that_came_past_admission_says_that_its_words_were_not_read() -> None:
    view = only(ALIYUNS)
    assert "admission has not seen it" in view.refused
    assert view.dialect == ""


def test_a_pod_with_a_hand_over_is_on_its_way() -> None:
    waiting = pod("a", fraction="0.5")
    view = only(waiting, bind_request(waiting, "n1", ("new", HALF)))
    assert view.waits == WaitView(on_its_way_to="n1")


def test_one_namespace_names_nobody_of_another_and_counts_them_all_the_same() -> None:
    ours = bound(pod("ours", fraction="0.5", namespace="ours"), "n1", ("g", HALF), uuid="GPU-1")
    theirs = bound(pod("theirs", fraction="0.25", namespace="theirs"), "n1", ("g", NANO // 4), uuid="GPU-1")
    book = reservation("g", uuid="GPU-1", book={"uid-ours": HALF, "uid-theirs": NANO // 4})
    found = seen(ours, theirs, book, namespace="ours")
    assert [view.name for view in found.pods] == ["ours"]
    device = found.nodes[0].devices[0]
    assert [tenant.name for tenant in device.tenants] == ["ours"]
    assert device.used_nano == HALF + NANO // 4
    assert "theirs" not in msgspec.json.encode(found).decode()


@pytest.mark.parametrize(
    ("tenant", "is_kept"),
    [
        ([], True),
        ([bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")], False),
        ([ended(bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"))], False),
        ([pod("t", fraction="0.5")], False),
    ],
    ids=["gone", "bound", "ended", "waiting"],
)
def test_a_share_is_kept_once_its_pod_is_gone(tenant: list[Pod], is_kept: bool) -> None:
    found = seen(reservation("g", uuid="GPU-1", book={"uid-t": HALF}), *tenant)
    assert [one.is_kept for one in found.nodes[0].devices[0].tenants] == [is_kept]


def test_where_not_all_pods_were_read_nothing_is_said_of_nodes() -> None:
    assert seen(pod(gpus=1, bound_to="n1"), are_all_pods=False).nodes == ()


def test_a_node_shows_its_address_and_the_devices_that_its_plugin_withholds() -> None:
    status = msgspec.structs.replace(
        NODE.status,
        addresses=[NodeAddress(type="Hostname", address="n1"), NodeAddress(type="InternalIP", address="10.0.0.1")],
        capacity={names.GPU_RESOURCE: "5"},
    )
    (view,) = survey(Found(nodes=[msgspec.structs.replace(NODE, status=status)])).nodes
    assert (view.address, view.gpus, view.unhealthy_gpus) == ("10.0.0.1", 4, 1)


def test_nodes_without_gpus_are_not_shown() -> None:
    assert survey(Found(nodes=[node("plain", gpus=0)])).nodes == ()


@pytest.mark.parametrize(
    ("one", "is_kept"),
    [
        (pod(), False),
        (pod(cpu="1"), False),
        (pod(gpus=1), True),
        (pod(fraction="0.5"), True),
        (pod(mem=1), True),
        (recorded({"aliyun.com/gpu-mem": "5"}), True),
        (ALIYUNS, True),
        (reservation("g"), True),
        (pod(labels={names.GPU_GROUP_LABEL: "g"}), True),
        (pod(labels={names.MULTI_GPU_GROUP_LABEL_PREFIX + "g": "g"}), True),
        (pod(spec={"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}), True),
        (
            pod(spec={"containers": [{}], "initContainers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}),
            True,
        ),
    ],
)
def test_only_pods_that_matter_are_kept_in_memory(one: Pod, is_kept: bool) -> None:
    assert matters(one) is is_kept

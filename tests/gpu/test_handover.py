"""From decision to binding: hand-over, fences, charges, and when a pod holds nothing any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import grant, limits
from gpu.attempts import fences, fencing
from gpu.bind_request import Handover, MalformedHandover, PlannedDevice, parse, render
from gpu.container_devices import quantity_text
from gpu.grant import Charged, has_ended
from gpu.limits import MemoryCaps
from gpu.request import MemoryAsk
from tests.gpu.test_enforcement import asks
from wire import names
from wire.core import Pod

WHOLE = {"rv": "10", "devices": [{"group": "g", "nano": 5}]}


def test_a_hand_over_is_read_as_it_was_written() -> None:
    handed = Handover("10", (PlannedDevice("g", 5), PlannedDevice("h", 7, 100)), "plan", 3)
    assert parse(render(handed)) == handed


def test_what_is_said_of_a_card_is_what_older_versions_read_and_of_a_slice_it_is_named() -> None:
    slice_ = PlannedDevice("g", 5, resource="nvidia.com/mig-1g.10gb")
    assert "resource" not in render(Handover("10", (PlannedDevice("g", 5),)))
    assert parse(render(Handover("10", (slice_,)))).devices == (slice_,)


@pytest.mark.parametrize("nano", [1, 1_000_000_000])
@pytest.mark.parametrize("percent", [0, 100])
def test_the_least_and_the_most_of_a_device_are_handed_over(nano: int, percent: int) -> None:
    handed = Handover("10", (PlannedDevice("g", nano, compute_percent=percent),))
    assert parse(render(handed)) == handed


def test_a_member_without_shares_has_no_devices() -> None:
    assert parse('{"rv": "10"}') == Handover("10")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # Without a version the Binding would have no precondition.
        ({"rv": ""}, "rv is ''"),
        ({"rv": "1e3"}, "rv is '1e3'"),
        ({"rv": "\N{ARABIC-INDIC DIGIT ONE}"}, "a resourceVersion is a decimal number"),
        ({"members": 0}, "members is 0, at least 1"),
        ({"devices": [{"group": "g", "nano": 0}]}, "nano is 0, 1 to 1000000000"),
        ({"devices": [{"group": "g", "nano": 1_000_000_001}]}, "nano is 1000000001"),
        ({"devices": [{"group": "g", "nano": 5, "mem_mib": -1}]}, "mem_mib is -1"),
        ({"devices": [{"group": "g", "nano": 5}, {"group": "g", "nano": 5}]}, "the groups must be distinct"),
        # A Binding's labels are not validated by the server, and spoil every later update of the pod.
        ({"devices": [{"group": "", "nano": 5}]}, "group '' can't be the value of a label"),
        ({"devices": [{"group": "a b", "nano": 5}]}, "group 'a b'"),
        ({"devices": [{"group": "x" * 64, "nano": 5}]}, "can't be the value of a label"),
        ({"devices": [{"group": "-g", "nano": 5}]}, "group '-g'"),
        # It becomes the request of a pod that we make.
        ({"devices": [{"group": "g", "nano": 5, "resource": "cpu"}]}, "resource 'cpu' is not one of NVIDIA's"),
        ({"devices": [{"group": "g", "nano": 5, "resource": "nvidia.com/mig-x"}]}, "resource 'nvidia.com/mig-x'"),
        ({"devices": {}}, "Expected `array`"),
        # Of several fields that a newer version may write, the first by name.
        ({"zeal": 1, "devices": [{"group": "g", "nano": 5, "care": 1}]}, "^care is not known here"),
        ({"care": 1, "devices": [{"group": "g", "nano": 5, "zeal": 1}]}, "^care is not known here"),
    ],
)
def test_a_malformed_hand_over_is_refused_naming_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedHandover, match=message.replace("(", r"\(")):
        parse(msgspec.json.encode({**WHOLE, **changes}).decode())


@pytest.mark.parametrize(
    "text", [None, "", "{", "null", '"x"', '{"rv": "1", "x": ' + "[" * 50_000], ids=lambda text: str(text)[:20]
)
def test_what_is_no_hand_over_is_refused(text: str | None) -> None:
    with pytest.raises(MalformedHandover):
        parse(text)


# Memory as Kubernetes writes it.


@pytest.mark.parametrize(
    ("mem_mib", "text"),
    [
        (0, "0"),
        (1, "1Mi"),
        (1023, "1023Mi"),
        (1024, "1Gi"),
        (1536, "1536Mi"),
        (1024**2, "1Ti"),
        (3 * 1024**3, "3Pi"),
        (1024**4, "1Ei"),
        (1024**5, "1024Ei"),
        (1024**6, "1048576Ei"),
    ],
)
def test_memory_is_written_with_the_largest_suffix_that_leaves_a_whole_number(mem_mib: int, text: str) -> None:
    assert quantity_text(mem_mib) == text


def test_a_second_fence_keeps_the_first() -> None:
    once = fencing({"other": "x"}, "a")
    assert once == {names.FENCED: "a"}
    twice = {**once, **fencing(once, "b")}
    assert fences(twice) == ("b", "a")


def test_the_same_fence_again_stands_there_once() -> None:
    twice = fencing(fencing(fencing({}, "a"), "b"), "a")
    assert fences(twice) == ("a", "b")


def test_a_pod_without_a_fence_has_none() -> None:
    assert fences(None) == fences({names.FENCED_BEFORE: "a"}) == ()


def test_no_more_than_eight_earlier_fences_are_kept() -> None:
    annotations: dict[str, str] = {}
    for number in range(20):
        annotations = fencing(annotations, f"attempt-{number}")
    assert fences(annotations) == tuple(f"attempt-{number}" for number in range(19, 10, -1))


# When a pod holds nothing any more.

RUNNING: dict[str, Any] = {"state": {"running": {}}}
WAITING: dict[str, Any] = {"state": {"waiting": {}}}
DONE = {"state": {"terminated": {"exitCode": 0}}}
COLLECTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


@pytest.mark.parametrize(
    ("status", "is_deleting", "expected"),
    [
        ({"phase": "Succeeded"}, False, True),
        ({"phase": "Failed", "containerStatuses": [DONE, DONE]}, False, True),
        # Marked Failed while it still ends.
        ({"phase": "Failed", "containerStatuses": [RUNNING, DONE]}, False, False),
        ({"phase": "Failed", "initContainerStatuses": [RUNNING]}, False, False),
        ({"phase": "Running", "containerStatuses": [DONE, DONE]}, False, False),
        # Deleted while kubelet starts its containers again, which it reports a moment later.
        ({"phase": "Running", "containerStatuses": [DONE, DONE]}, True, False),
        ({"phase": "Running", "containerStatuses": [DONE, WAITING]}, True, False),
        # Not all containers are told of.
        ({"phase": "Running", "containerStatuses": [DONE]}, True, False),
        ({"phase": "Running"}, True, False),
        ({"phase": "Pending"}, True, False),
        # Marked by pod garbage collection, which has not asked the kubelet.
        ({"phase": "Failed", "conditions": [COLLECTED]}, True, False),
        ({"phase": "Failed", "containerStatuses": [WAITING], "conditions": [COLLECTED]}, True, False),
        ({"phase": "Failed", "conditions": [{**COLLECTED, "reason": "EvictionByEvictionAPI"}]}, True, True),
    ],
)
def test_a_pod_has_ended_when_none_of_its_containers_runs_any_more(
    status: dict[str, Any], is_deleting: bool, expected: bool
) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleting else {}
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert has_ended(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod).status) is expected


@pytest.mark.parametrize(
    "what",
    [
        Charged("team", True),
        Charged("team", False),
        Charged("team", True, "a100"),
        Charged("t", True, ""),
        Charged("t", True, None, 75),
        Charged("t", True, minimum=8, part=3),
    ],
    ids=["preemptible", "not preemptible", "of a node pool", "of the default pool", "with a priority", "of a gang"],
)
def test_what_a_binding_writes_is_read_back(what: Charged) -> None:
    assert grant.read_charged(grant.render_charged(what)) == what


def test_what_many_pods_share_is_kept_once() -> None:
    written = grant.render_charged(Charged("team", True))
    again = grant.render_charged(Charged("team", True))
    assert grant.read_charged(written) is grant.read_charged(again)
    assert grant.read_charged(written) is grant.charged("team", None, is_preemptible=True)


def test_a_later_version_may_say_more() -> None:
    assert grant.read_charged({names.CHARGED: '{"queue":"t","preemptible":true,"later":1}'}) == Charged("t", True)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"queue":"t"}', '{"queue":"","preemptible":true}', '{"queue":1,"preemptible":true}', "x" * 5000,
     '{"queue":"' + "t" * 2000 + '","preemptible":true}', "[" * 1000,
     '{"queue":"t","preemptible":true,"priority":9999999999}'],
    ids=["empty", "broken", "a list", "half", "no queue", "a number", "long", "a long queue", "deep", "too large"],
)  # fmt: skip
def test_what_cannot_be_read_is_none(text: str) -> None:
    assert grant.read_charged({names.CHARGED: text}) is None


def test_a_pod_without_it_has_none() -> None:
    assert (grant.read_charged(None), grant.read_charged({}), grant.render_charged(None)) == (None, None, {})


POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
VIEW, LIMITS = f"moorage.dev/view={POD}", f"moorage.dev/limits={POD}"


@pytest.mark.parametrize(
    ("enforces", "shows_tenants", "memory_caps", "given"),
    [
        ((), False, MemoryCaps.WISHED, ()),
        ((), True, MemoryCaps.WISHED, (VIEW,)),
        (("memory-cap=hami-core",), False, MemoryCaps.WISHED, (LIMITS,)),
        (("memory-cap=hami-core",), True, MemoryCaps.WISHED, (VIEW, LIMITS)),
        (("memory-cap=hami-core",), True, MemoryCaps.NONE, (VIEW,)),
    ],
)
def test_each_device_is_named_where_its_node_has_it(
    enforces: tuple[str, ...], shows_tenants: bool, memory_caps: MemoryCaps, given: tuple[str, ...]
) -> None:
    pod = asks((MemoryAsk(mem_mib=1024),))
    named = limits.devices(POD, pod, enforces=enforces, shows_tenants=shows_tenants, memory_caps=memory_caps)
    assert named == given
    assert all(each.startswith(limits.PREFIXES) for each in named)

"""Bad and odd input at the door: a clear refusal or a clean run, and nothing else disturbed.

Beside every case a healthy neighbour is created, which has to run with its one device; the components have to be alive
afterwards with no traceback in their logs.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.e2e.cluster import Pod, memory, pod, scheduled_message, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import Refused, refused
from wire import names

pytestmark = pytest.mark.cluster

NUM_DEVICES = names.GPU_FRACTION_NUM_DEVICES
CONTAINER = names.GPU_FRACTION_CONTAINER_NAME
WHOLE = "cannot have both GPU fraction request and whole GPU resource request/limit"
BOTH = "cannot request both GPU and GPU memory"
ALONE = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
MEMORY = "gpu-memory annotation value must be a positive integer greater than 0"
FRACTION = "gpu-fraction annotation value must be a positive number smaller than 1.0"
FLOAT = (
    "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: "
)
COUNT = "fraction count annotation value must be a positive integer greater than 0"
UNKNOWN = "failed to get fraction container ref: container with name {} not found for fraction request"


def _asks(annotations: dict[str, str], *, gpus: int = 0) -> Pod:
    return pod("bad", annotations=annotations, gpus=gpus)


def _half(**annotations: str) -> Pod:
    return _asks({names.GPU_FRACTION: "0.5", **annotations})


def _count(text: str) -> Pod:
    return _half(**{NUM_DEVICES: text})


def _with_whole_gpu_in_an_init_container() -> Pod:
    wanted = _half()
    resources = {"limits": {names.GPU_RESOURCE: "1"}}
    wanted["spec"]["initContainers"] = [{"name": "load", "image": "cuda-app", "resources": resources}]
    return wanted


class Malformed(NamedTuple):
    """What is asked, KAI's words for its refusal (kai-contract 1.4), and the field and value that they name."""

    wanted: Pod
    words: str
    tells: str
    name: str


MALFORMED = [
    Malformed(_asks({names.MPS: "true"}), "MPS is only supported with GPU fraction request", "mps is", name="mps"),
    Malformed(_asks({names.GPU_FRACTION: "0.5"}, gpus=1), WHOLE, 'gpu-fraction is "0.5"', name="whole"),
    Malformed(_with_whole_gpu_in_an_init_container(), WHOLE, 'gpu-fraction is "0.5"', name="whole-in-init"),
    Malformed(_asks({names.GPU_MEMORY: "2000"}, gpus=1), BOTH, 'gpu-memory is "2000"', name="memory-and-whole"),
    Malformed(_half(**{names.GPU_MEMORY: "2000"}), BOTH, 'gpu-memory is "2000"', name="memory-and-fraction"),
    Malformed(_asks({NUM_DEVICES: "2"}), ALONE, f'{NUM_DEVICES} is "2"', name="count-alone"),
    *(
        Malformed(_asks({names.GPU_MEMORY: text}), MEMORY, f'gpu-memory is "{text}"', name=f"memory={text}")
        for text in ("", "0", "-1", "+1", "2Gi", "1e3", "2000.0", " 2000", "0x10", "18446744073709551616", "\u0662")
    ),
    *(
        Malformed(_asks({names.GPU_FRACTION: text}), FRACTION, f'gpu-fraction is "{text}"', name=f"fraction={text}")
        for text in (
            "",
            "0",
            "1",
            "1.0",
            "-0.5",
            "half",
            "50%",
            "1/2",
            "Inf",
            "1e400",
            "0,5",
            "½",
            "\u0660.\u0665",
            " 0.5",
        )
    ),
    *(
        Malformed(_asks({names.GPU_FRACTION: text}), FLOAT + text, f'gpu-fraction is "{text}"', name=f"float={text}")
        for text in ("NaN", "0x1p-1")
    ),
    *(
        Malformed(_count(text), COUNT, f'{NUM_DEVICES} is "{text}"', name=f"count={text}")
        for text in ("", "0", "-2", "+2", "2.0", "2.5", "1e1", "two", "99999999999999999999")
    ),
    Malformed(_count("1000000000000000000"), f"{NUM_DEVICES} 1000000000000000000 is too large", "", name="count=1e18"),
    Malformed(_half(**{CONTAINER: "x"}), UNKNOWN.format("x"), f'{CONTAINER} is "x"', name="container"),
    Malformed(_half(**{CONTAINER: "größe"}), UNKNOWN.format("größe"), f'{CONTAINER} is "größe"', name="not-ascii"),
    Malformed(
        _half(**{names.GPU_FRACTION_CONTAINER_TYPE: "InitContainer"}),
        "failed to get fraction container ref: the pod has no init container",
        f'{names.GPU_FRACTION_CONTAINER_TYPE} is "InitContainer"',
        name="no-init-container",
    ),
    Malformed(_asks({names.GPU_FRACTION: "5" * 250_000}), FRACTION, "(250000 characters)", name="huge-fraction"),
    Malformed(_asks({names.GPU_MEMORY: "9" * 250_000}), MEMORY, "(250000 characters)", name="huge-memory"),
    Malformed(_count("1" * 250_000), COUNT, "(250000 characters)", name="huge-count"),
    Malformed(_half(**{CONTAINER: "ü" * 120_000}), "failed to get fraction", "(120000 char", name="huge-container"),
]


def _is_right(refusal: Refused, case: Malformed) -> bool:
    told = (case.words, case.tells, "; allowed: ")
    return refusal.status == 403 and all(each in refusal.message for each in told) and len(refusal.message) < 1000


async def test_malformed_requests_are_refused_in_kais_words_with_field_value_and_what_is_allowed(crowd: Crowd) -> None:
    """All beside one neighbour: a neighbour for each takes 0.35 s of CPU time."""
    refusals = [(case, await refused(crowd.tenant.create(case.wanted))) for case in MALFORMED]
    assert {case.name: refusal for case, refusal in refusals if not _is_right(refusal, case)} == {}
    assert "bad" not in await crowd.scene.pods()


async def test_names_that_are_none_are_refused_by_the_server_and_not_by_a_fault_of_ours(crowd: Crowd) -> None:
    for name in ("", "-", "A", "a_b", "a..b", "ü", "a" * 254):
        refusal = await refused(crowd.tenant.create(share(name, "0.5")))
        assert (name, refusal.status) == (name, 422)
        assert "metadata.name" in refusal.message


def _owned(name: str, owner: str) -> Pod:
    owners = [{"apiVersion": "example.com/v1", "kind": "Trainer", "name": owner, "uid": str(uuid.uuid4())}]
    return share(name, "0.5", ownerReferences=owners)


def _generated(prefix: str) -> Pod:
    wanted = share("", "0.5", generateName=prefix)
    del wanted["metadata"]["name"]
    return wanted


def _two(name: str) -> Pod:
    return pod(name, annotations={names.GPU_FRACTION: "0.5", NUM_DEVICES: "2"})


def _noted(name: str, text: str) -> Pod:
    wanted = pod(name, annotations={names.GPU_FRACTION: "0.5", "example.com/note": text})
    wanted["spec"]["containers"][0]["env"] = [{"name": "NOTE", "value": text[:100]}]
    return wanted


ODD = [
    pytest.param(share("n" * 253, "0.5"), 1, id="253-characters"),
    pytest.param(_two("m" * 253), 2, id="253-characters-two-devices"),
    pytest.param(share("a.b.c-1.d", "0.5"), 1, id="dotted"),
    pytest.param(share(".".join("a" * 126), "0.5"), 1, id="many-dots"),
    pytest.param(share("0", "0.5"), 1, id="one-digit"),
    pytest.param(_generated("trainer-"), 1, id="generated"),
    pytest.param(_generated("a.b-"), 1, id="generated-dotted"),
    pytest.param(_generated("g" * 253), 1, id="generated-long"),
    pytest.param(_owned("owned-by-dash", "run-"), 1, id="owner-ends-in-dash"),
    pytest.param(_owned("owned-by-dot", "run."), 1, id="owner-ends-in-dot"),
    pytest.param(_owned("owned-by-junk", "..-Ünter/Öber\n"), 1, id="owner-of-junk"),
    pytest.param(_owned("owned-by-much", "o" * 10_000), 1, id="owner-of-10000-characters"),
    pytest.param(_noted("foreign-letters", "zwei Drittel ½ 🚢 \u202e \x7f"), 1, id="not-ascii"),
    pytest.param(_noted("huge", "x" * 250_000), 1, id="huge-annotation"),
    pytest.param(share("tiny", "1e-9"), 1, id="least-share"),
    pytest.param(share("many-digits", "0." + "3" * 100), 1, id="102-digits"),
    pytest.param(share("exponent", "5E-1"), 1, id="exponent"),
]


@pytest.mark.parametrize(("wanted", "devices"), ODD)
async def test_odd_but_right_input_runs_with_exactly_its_devices(crowd: Crowd, wanted: Pod, devices: int) -> None:
    created = await crowd.tenant.create(wanted)
    found = await crowd.runs(created)
    seen = crowd.scene.seen(found)
    assert len(seen["main"]) == devices
    granted = found["metadata"]["annotations"][names.VISIBLE_DEVICES_PREFIX + "c0"]
    assert set(granted.split(",")) == set(seen["main"])
    group_labels = [key for key in found["metadata"]["labels"] if key.startswith(names.GPU_GROUP_LABEL)]
    assert len(group_labels) == devices


def _cpu(**requests: str) -> Pod:
    wanted = pod("much")
    wanted["spec"]["containers"][0]["resources"] = {"requests": requests}
    return wanted


WAITING = [
    pytest.param(memory("much", 81_921), "GPU memory", id="1-MiB-above-the-card"),
    pytest.param(memory("much", 2**64 - 1), "GPU memory", id="memory-2^64-1"),
    pytest.param(_count("5"), "2 node(s) didn't have enough resources: GPUs", id="5-devices-of-4"),
    pytest.param(_count("256"), "2 node(s) didn't have enough resources: GPUs", id="256-devices"),
    pytest.param(pod("much", gpus=5), "2 node(s) didn't have enough resources: GPUs", id="5-whole-of-4"),
    pytest.param(_cpu(cpu="1M"), "2 node(s) didn't have enough resources: CPU cores", id="cpu"),
    pytest.param(_cpu(memory="7E"), "2 node(s) didn't have enough resources: memory", id="memory"),
    pytest.param(
        _cpu(memory="100E"), "the pod's memory can't be read: quantity '100E' is not", id="memory-beyond-64-bits"
    ),
    pytest.param(_cpu(**{"ephemeral-storage": "7E"}), "ephemeral-storage", id="ephemeral"),
]


@pytest.mark.parametrize(("wanted", "words"), WAITING)
async def test_what_no_node_has_waits_with_a_true_reason(crowd: Crowd, wanted: Pod, words: str) -> None:
    created = await crowd.tenant.create(wanted)
    await crowd.scene.says(created["metadata"]["name"], words)


# --- pods that slipped past admission ----------------------------------------------------------------------------

NOT_ADMITTED = "its container would not see it: it was not changed by the admission webhook"


async def test_a_share_asked_for_after_admission_is_refused(crowd: Crowd) -> None:
    late = pod("late")
    late["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(late)
    for fraction, words in (("2", FRACTION), ("0.5", "container main can't be given a share any more")):
        edit = {"metadata": {"annotations": {names.GPU_FRACTION: fraction}}}
        assert words in (await refused(crowd.tenant.patch("late", edit))).message
    await crowd.tenant.patch("late", {"spec": {"schedulingGates": []}})
    assert crowd.scene.seen(await crowd.runs(created)) == {"main": ()}


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param({names.GPU_FRACTION: "0.5"}, NOT_ADMITTED, id="not-changed"),
        pytest.param({names.GPU_FRACTION: "1.5"}, FRACTION, id="malformed"),
        pytest.param({names.GPU_FRACTION: "5" * 250_000}, FRACTION, id="huge"),
        pytest.param({NUM_DEVICES: "2"}, ALONE, id="incomplete"),
        pytest.param({"example.com/note": "x" * 262_128}, "the annotations leave no room", id="no-room"),
    ],
)
async def test_a_pod_that_no_webhook_saw_is_never_bound_and_says_why(
    crowd: Crowd, annotations: dict[str, str], words: str
) -> None:
    wanted = pod("unseen", annotations=annotations)
    wanted["spec"]["nodeSelector"] = {"scene": crowd.scene.namespace}
    core, exempt = crowd.scene.core, names.SYSTEM_NAMESPACE
    await core.create_namespaced_pod(exempt, wanted)
    try:
        found = await crowd.waits(exempt, "unseen")
        assert words in scheduled_message(found)
        assert "nodeName" not in found["spec"]
    finally:
        await core.delete_namespaced_pod("unseen", exempt, grace_period_seconds=0)


# --- annotations as large as they may be -------------------------------------------------------------------------

LIMIT = 262_144
NO_ROOM = "the annotations leave no room for what is written when the pod is bound"


def _filled(wanted: Pod, *, to: int) -> Pod:
    """The pod with a note that brings its annotations to so many bytes."""
    annotations = wanted["metadata"]["annotations"]
    others = sum(len(key) + len(value) for key, value in annotations.items())
    key = "example.com/note"
    return {
        **wanted,
        "metadata": {**wanted["metadata"], "annotations": {**annotations, key: "x" * (to - others - len(key))}},
    }


@pytest.mark.parametrize("make", [lambda: share("full", "0.5"), lambda: pod("full", gpus=1)], ids=["share", "whole"])
async def test_a_pod_without_room_for_its_binding_is_refused_and_one_with_just_enough_runs(
    crowd: Crowd, make: Callable[[], Pod]
) -> None:
    """The server merges a Binding's annotations unseen; above the limit the kubelet could never report the pod."""
    refusal = await refused(crowd.tenant.create(_filled(make(), to=LIMIT)))
    assert refusal.is_ours
    assert NO_ROOM in refusal.message
    most = int(re.findall("at most ([0-9]+) bytes", refusal.message)[0])
    assert f'metadata.annotations is "{LIMIT} bytes"' in refusal.message
    gated = _filled(make(), to=most)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    created = await crowd.tenant.create(gated)
    refusal = await refused(crowd.tenant.patch("full", {"metadata": {"annotations": {"one": "more"}}}))
    assert refusal.is_ours
    assert NO_ROOM in refusal.message
    await crowd.tenant.patch("full", {"spec": {"schedulingGates": []}})
    await crowd.runs(created)

"""Bad and odd input at the door: a clear refusal or a clean run, and nothing else disturbed.

Beside every case a healthy neighbour is created, which has to run with its one device; the components have to be alive
afterwards with no traceback in their logs.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.cluster import Pod, memory, pod, scene, scheduled_message, share
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import refused, tenant
from tools.cluster import ControlPlane
from tools.deployment import Deployment
from wire import names

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
async def standing_crowd(control_plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Crowd]:
    """Two machines for all tests of this module."""
    async with scene(control_plane, "bad-input", ["2x4x80GiB"]) as made:
        async with tenant(control_plane, "bad-input") as whoever:
            yield Crowd(made, whoever, moorage)


@pytest.fixture
async def crowd(standing_crowd: Crowd) -> AsyncIterator[Crowd]:
    """A test beside a healthy neighbour."""
    async with standing_crowd.with_a_neighbour():
        yield standing_crowd


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


#: What is asked, KAI's words for its refusal (kai-contract 1.4 and erratum 1), and the field and value they speak of.
MALFORMED = [
    pytest.param(_asks({names.MPS: "true"}), "MPS is only supported with GPU fraction request", "mps is", id="mps"),
    pytest.param(_asks({names.GPU_FRACTION: "0.5"}, gpus=1), WHOLE, 'gpu-fraction is "0.5"', id="whole"),
    pytest.param(_with_whole_gpu_in_an_init_container(), WHOLE, 'gpu-fraction is "0.5"', id="whole-in-init"),
    pytest.param(_asks({names.GPU_MEMORY: "2000"}, gpus=1), BOTH, 'gpu-memory is "2000"', id="memory-and-whole"),
    pytest.param(_half(**{names.GPU_MEMORY: "2000"}), BOTH, 'gpu-memory is "2000"', id="memory-and-fraction"),
    pytest.param(_asks({NUM_DEVICES: "2"}), ALONE, f'{NUM_DEVICES} is "2"', id="count-alone"),
    *(
        pytest.param(_asks({names.GPU_MEMORY: text}), MEMORY, f'gpu-memory is "{text}"', id=f"memory={text}")
        for text in ("", "0", "-1", "+1", "2Gi", "1e3", "2000.0", " 2000", "0x10", "18446744073709551616", "٢٠٠٠")
    ),
    *(
        pytest.param(_asks({names.GPU_FRACTION: text}), FRACTION, f'gpu-fraction is "{text}"', id=f"fraction={text}")
        for text in ("", "0", "1", "1.0", "-0.5", "half", "50%", "1/2", "Inf", "1e400", "0,5", "½", "٠.٥", " 0.5")
    ),
    *(
        pytest.param(_asks({names.GPU_FRACTION: text}), FLOAT + text, f'gpu-fraction is "{text}"', id=f"float={text}")
        for text in ("NaN", "0x1p-1")
    ),
    *(
        pytest.param(_count(text), COUNT, f'{NUM_DEVICES} is "{text}"', id=f"count={text}")
        for text in ("", "0", "-2", "+2", "2.0", "2.5", "1e1", "two", "99999999999999999999")
    ),
    pytest.param(_count("1000000000000000000"), f"{NUM_DEVICES} 1000000000000000000 is too large", "", id="count=1e18"),
    pytest.param(_half(**{CONTAINER: "x"}), UNKNOWN.format("x"), f'{CONTAINER} is "x"', id="container"),
    pytest.param(_half(**{CONTAINER: "größe"}), UNKNOWN.format("größe"), f'{CONTAINER} is "größe"', id="not-ascii"),
    pytest.param(
        _half(**{names.GPU_FRACTION_CONTAINER_TYPE: "InitContainer"}),
        "failed to get fraction container ref: the pod has no init container",
        f'{names.GPU_FRACTION_CONTAINER_TYPE} is "InitContainer"',
        id="no-init-container",
    ),
    pytest.param(_asks({names.GPU_FRACTION: "5" * 250_000}), FRACTION, "(250000 characters)", id="huge-fraction"),
    pytest.param(_asks({names.GPU_MEMORY: "9" * 250_000}), MEMORY, "(250000 characters)", id="huge-memory"),
    pytest.param(_count("1" * 250_000), COUNT, "(250000 characters)", id="huge-count"),
    pytest.param(_half(**{CONTAINER: "ü" * 120_000}), "failed to get fraction", "(120000 char", id="huge-container"),
]


@pytest.mark.parametrize(("wanted", "words", "tells"), MALFORMED)
async def test_a_malformed_request_is_refused_in_kais_words_with_field_value_and_what_is_allowed(
    crowd: Crowd, wanted: Pod, words: str, tells: str
) -> None:
    refusal = await refused(crowd.tenant.create(wanted))
    assert refusal.status == 403
    assert words in refusal.message
    assert tells in refusal.message
    assert "; allowed: " in refusal.message
    assert len(refusal.message) < 1000
    assert "bad" not in await crowd.scene.pods()


@pytest.mark.parametrize("name", ["", "-", "A", "a_b", "a..b", "ü", "a" * 254])
async def test_a_name_that_is_none_is_refused_by_the_server_and_not_by_a_fault_of_ours(crowd: Crowd, name: str) -> None:
    refusal = await refused(crowd.tenant.create(share(name, "0.5")))
    assert refusal.status == 422
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
    pytest.param(_count("1024"), "2 node(s) didn't have enough resources: GPUs", id="1024-devices"),
    pytest.param(pod("much", gpus=5), "2 node(s) didn't have enough resources: GPUs", id="5-whole-of-4"),
    pytest.param(_cpu(cpu="1M"), "2 node(s) didn't have enough resources: CPU cores", id="cpu"),
    pytest.param(_cpu(memory="7E"), "2 node(s) didn't have enough resources: memory", id="memory"),
    pytest.param(_cpu(memory="100E"), "memory", id="memory-beyond-64-bits"),
    pytest.param(_cpu(**{"ephemeral-storage": "7E"}), "ephemeral-storage", id="ephemeral"),
]


@pytest.mark.parametrize(("wanted", "words"), WAITING)
async def test_what_no_node_has_waits_with_a_true_reason(crowd: Crowd, wanted: Pod, words: str) -> None:
    created = await crowd.tenant.create(wanted)
    await crowd.scene.says(created["metadata"]["name"], words)


# --- what a new pod brings along ---------------------------------------------------------------------------------

FORGED: dict[str, Any] = {
    "labels": {
        names.GPU_GROUP_LABEL: "stolen",
        names.MULTI_GPU_GROUP_LABEL_PREFIX + "other": "other",
        names.APP_LABEL: names.RESERVATION_APP,
    },
    "annotations": {
        names.GRANT: '{"attempt":"a","devices":[{"group":"stolen","reservation":"r","uuid":"GPU-1","nano":1}]}',
        names.VISIBLE_DEVICES_PREFIX + "c0": "all",
        names.VISIBLE_DEVICES_PREFIX + "c7": "all",
        names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION,
        names.GPU_PORTION_ANNOTATION: "9.99",
        names.FENCED: "forged",
        names.FENCED_BECAUSE: "Forged: by a tenant",
        names.TENANTS: "{}",
        names.RESERVE_FOR_GPU_INDEX: "GPU-1",
        names.DEVICE_INDEX: "0",
        names.DEVICE_MEMORY: "1",
        names.SHARED_GPU_CONFIGMAP: "somebody-elses",
    },
}


async def test_forged_keys_of_a_new_pod_are_stripped_and_made_anew(crowd: Crowd) -> None:
    wanted = _half(**FORGED["annotations"])
    wanted["metadata"]["labels"] = FORGED["labels"]
    created = await crowd.tenant.create(wanted)
    assert created["metadata"]["labels"] == {names.APP_LABEL: names.RESERVATION_APP}
    assert created["metadata"]["annotations"] == {names.GPU_FRACTION: "0.5"}
    found = await crowd.runs(created)
    crowd.is_given_what_it_sees(found)
    assert found["metadata"]["annotations"][names.GPU_PORTION_ANNOTATION] == "0.50"
    assert names.VISIBLE_DEVICES_PREFIX + "c7" not in found["metadata"]["annotations"]


async def test_forged_keys_of_a_pod_without_a_share_give_it_nothing(crowd: Crowd) -> None:
    wanted = pod("bad", annotations=FORGED["annotations"], labels=FORGED["labels"])
    entry = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"}}
    wanted["spec"]["containers"][0]["env"] = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": entry}]
    found = await crowd.runs(await crowd.tenant.create(wanted))
    assert crowd.scene.seen(found) == {"main": ()}
    assert found["metadata"]["annotations"] == {names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_REGULAR}


def _copy(found: Pod, name: str, *, with_node: bool) -> Pod:
    """A pod as a backup writes it back: all of metadata that a user may bring, and the whole spec."""
    kept = {key: found["metadata"][key] for key in ("labels", "annotations")}
    spec = {key: value for key, value in found["spec"].items() if with_node or key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **kept}, "spec": spec}


async def test_a_copy_of_a_bound_pod_is_placed_as_if_it_were_new(crowd: Crowd) -> None:
    original = await crowd.runs(await crowd.tenant.create(share("original", "0.7")))
    created = await crowd.tenant.create(_copy(original, "copy", with_node=False))
    assert created["metadata"]["annotations"] == {names.GPU_FRACTION: "0.7"}
    assert "labels" not in created["metadata"]
    copied = await crowd.runs(created)
    crowd.is_given_what_it_sees(copied)
    assert crowd.scene.seen(copied) != crowd.scene.seen(original)


async def test_a_copy_that_brings_its_node_along_gets_no_device_and_takes_none(crowd: Crowd) -> None:
    original = await crowd.runs(await crowd.tenant.create(share("original", "0.7")))
    copied = await crowd.runs(await crowd.tenant.create(_copy(original, "copy", with_node=True)))
    assert crowd.scene.seen(copied) == {"main": ()}
    assert names.GRANT not in copied["metadata"]["annotations"]
    beside = await crowd.runs(await crowd.tenant.create(share("beside", "0.05")))
    assert crowd.scene.seen(beside) == crowd.scene.seen(original)


# --- what a tenant writes afterwards -----------------------------------------------------------------------------

CHANGES = [
    pytest.param({"annotations": {names.GPU_FRACTION: "0.1"}}, id="smaller-ask"),
    pytest.param({"annotations": {names.GPU_FRACTION: None}}, id="no-ask"),
    pytest.param({"annotations": {names.GPU_FRACTION: None, names.GPU_MEMORY: "1"}}, id="other-ask"),
    pytest.param({"annotations": {NUM_DEVICES: "1"}}, id="count"),
    pytest.param({"annotations": {CONTAINER: "main"}}, id="container"),
    pytest.param({"annotations": {names.GRANT: None}}, id="no-grant"),
    pytest.param({"annotations": {names.GRANT: FORGED["annotations"][names.GRANT]}}, id="other-grant"),
    pytest.param({"annotations": {names.VISIBLE_DEVICES_PREFIX + "c0": "all"}}, id="all-devices"),
    pytest.param({"annotations": {names.VISIBLE_DEVICES_PREFIX + "i0": "all"}}, id="further-devices"),
    pytest.param({"annotations": {names.RECEIVED_RESOURCE_TYPE: "Regular"}}, id="received-type"),
    pytest.param({"annotations": {names.GPU_PORTION_ANNOTATION: "0.01"}}, id="portion"),
    pytest.param({"annotations": {names.FENCED: "x"}}, id="fence"),
    pytest.param({"annotations": {names.SHARED_GPU_CONFIGMAP: "mine"}}, id="config-map-prefix"),
    pytest.param({"labels": {names.GPU_GROUP_LABEL: None}}, id="no-group"),
    pytest.param({"labels": {names.GPU_GROUP_LABEL: "other"}}, id="other-group"),
    pytest.param({"labels": {names.MULTI_GPU_GROUP_LABEL_PREFIX + "g": "g"}}, id="second-group"),
]


async def test_after_placement_a_tenant_changes_nothing_that_counts(crowd: Crowd) -> None:
    found = await crowd.runs(await crowd.tenant.create(share("placed", "0.5")))
    for change in CHANGES:
        (metadata,) = change.values
        for subresource in ("", "status"):
            patch = {"metadata": metadata}
            refusal = await refused(crowd.tenant.patch("placed", patch, subresource=subresource))
            assert refusal.is_ours, (change.id, subresource, refusal)
    harmless = {"labels": {"team": "a"}, "annotations": {"example.com/note": "ü"}}
    changed = await crowd.tenant.patch("placed", {"metadata": harmless})
    crowd.is_given_what_it_sees(changed)
    assert crowd.scene.seen(changed) == crowd.scene.seen(found)


async def test_a_debug_container_beside_a_share_sees_no_device(crowd: Crowd) -> None:
    await crowd.runs(await crowd.tenant.create(share("placed", "0.5")))
    debug = {"name": "debug", "image": "sh", "env": [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}]}
    patch = {"spec": {"ephemeralContainers": [debug]}}
    changed = await crowd.tenant.patch("placed", patch, subresource="ephemeralcontainers")
    (container,) = changed["spec"]["ephemeralContainers"]
    assert container["env"] == [{"name": names.ENV_VISIBLE_DEVICES, "value": names.VISIBLE_DEVICES_NONE}]


async def test_a_tenants_own_binding_brings_no_device_along(crowd: Crowd) -> None:
    gated = share("gated", "0.5")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await crowd.tenant.create(gated)
    (node, *_) = crowd.scene.nodes.kubelets
    for metadata in (FORGED["annotations"], {names.GRANT: "{}"}):
        refusal = await refused(crowd.tenant.bind("gated", node, annotations=metadata))
        assert refusal.is_ours, refusal
    refusal = await refused(crowd.tenant.bind("gated", node, labels={names.GPU_GROUP_LABEL: "g"}))
    assert refusal.is_ours, refusal


# --- pods that slipped past admission ----------------------------------------------------------------------------

NOT_ADMITTED = "its container would not see it: it was not changed by the admission webhook"


async def test_a_share_asked_for_after_admission_is_never_bound_and_says_why(crowd: Crowd) -> None:
    late = pod("late")
    late["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await crowd.tenant.create(late)
    refusal = await refused(crowd.tenant.patch("late", {"metadata": {"annotations": {names.GPU_FRACTION: "2"}}}))
    assert FRACTION in refusal.message
    await crowd.tenant.patch("late", {"metadata": {"annotations": {names.GPU_FRACTION: "0.5"}}})
    await crowd.tenant.patch("late", {"spec": {"schedulingGates": []}})
    await crowd.scene.says("late", NOT_ADMITTED)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param({names.GPU_FRACTION: "0.5"}, NOT_ADMITTED, id="not-changed"),
        pytest.param({names.GPU_FRACTION: "1.5"}, FRACTION, id="malformed"),
        pytest.param({names.GPU_FRACTION: "5" * 250_000}, FRACTION, id="huge"),
        pytest.param({NUM_DEVICES: "2"}, ALONE, id="incomplete"),
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


LIMIT = 262_144


@pytest.mark.parametrize("spare", [0, 40, 400, 1000])
async def test_a_pod_full(crowd: Crowd, spare: int) -> None:
    wanted = share("full", "0.5")
    wanted["metadata"]["annotations"]["n"] = ""
    used = sum(len(k) + len(v) for k, v in wanted["metadata"]["annotations"].items())
    wanted["metadata"]["annotations"]["n"] = "x" * (LIMIT - used - spare)
    created = await crowd.tenant.create(wanted)
    found = await crowd.runs(created)
    print(sum(len(k) + len(v) for k, v in found["metadata"]["annotations"].items()))
    crowd.is_given_what_it_sees(found)

"""What simulated nodes are made of: shape, devices, checkpoint, environment, admission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.nodes import containers, node_object, pod_admission, shape
from simulator.nodes.containers import MissingSource, UnknownDevice
from simulator.nodes.device_manager import BadCheckpoint, Checkpoints, Device, DeviceManager, Shortage, make_devices
from simulator.nodes.shape import MalformedAddition, NodeShape, added
from wire.core import Pod


@pytest.mark.parametrize(
    ("texts", "cards"),
    [
        (["1x8x80GiB"], [(81920,) * 8]),
        (["2x1x46068MiB"], [(46068,), (46068,)]),
        (["1x2x24GiB+1x80GiB"], [(24576, 24576, 81920)]),
        (["2x0"], [(), ()]),
        (["1x1x1Ti", "1x0"], [(1048576,), ()]),
        (["1x1x24G", "1x1x24GB"], [(22888,), (22888,)]),
    ],
)
def test_nodes_are_read(texts: list[str], cards: list[tuple[int, ...]]) -> None:
    nodes = shape.parse(texts)
    assert [node.cards_mib for node in nodes] == cards
    assert [node.name for node in nodes] == [f"node-{i}" for i in range(len(cards))]


@pytest.mark.parametrize(
    ("text", "cards", "slices"),
    [
        ("1x7x1g.10gb", (), ("1g.10gb",) * 7),
        ("1x2x80GiB+2x1g.10gb+1x3g.40gb", (81920, 81920), ("1g.10gb", "1g.10gb", "3g.40gb")),
    ],
)
def test_slices_are_told_by_their_profile(text: str, cards: tuple[int, ...], slices: tuple[str, ...]) -> None:
    (node,) = shape.parse([text])
    assert (node.cards_mib, node.slices) == (cards, slices)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a number of nodes"),
        ("8", "not a number of nodes"),
        ("0x8x80GiB", "no nodes"),
        ("1x8", "'8' is not a number of GPUs"),
        ("1x8x80", "'8x80' is not a number of GPUs"),
        ("1x8x80KiB", "'8x80KiB' is not a number of GPUs"),
        ("1x7x9g.10gb", "'7x9g.10gb' is not a number of GPUs"),
        ("1x0x1g.10gb", "'0x1g.10gb' is not a number of GPUs"),
        ("1x60x1g.10gb+5x1GiB", "more than 64 GPUs"),
        ("1x8x0GiB", "is not between 1 MiB"),
        ("1x8x80GiB+", "'' is not a number of GPUs"),
        ("1x65x1GiB", "more than 64 GPUs"),
        ("100001x0", "more than 100000 nodes"),
        ("1000000x8x80GiB", "more than 100000 nodes"),
        ("1x1x99999999999999999999TiB", "quantity"),
        ("-1x8x80GiB", "not a number of nodes"),
    ],
)
def test_what_is_no_shape_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(shape.MalformedShape) as caught:
        shape.parse([text])
    assert str(caught.value).startswith(f"nodes {text!r}: ")
    assert why in str(caught.value)
    assert "4x8x80GiB" in str(caught.value)


# Labels and resources that all simulated nodes have.

TWO = shape.parse(["1x1x80GiB", "1x0"])


def test_all_nodes_have_the_labels() -> None:
    nodes = added(TWO, labels=["example.com/rack=r1", "node-role.kubernetes.io/master="], resources=[])
    for each in nodes:
        labels = node_object.labels(each)
        assert (labels["example.com/rack"], labels["node-role.kubernetes.io/master"]) == ("r1", "")


@pytest.mark.parametrize(
    ("text", "name", "amount"),
    [
        ("npu.example/cards=8", "npu.example/cards", "8"),
        ("cpu=1500m", "cpu", "1500m"),
        ("cpu=192", "cpu", "192000m"),
        ("memory=2Ti", "memory", "2097152Mi"),
        ("ephemeral-storage=4Ti", "ephemeral-storage", "4194304Mi"),
        ("pods=250", "pods", "250"),
    ],
)
def test_all_nodes_have_the_amount(text: str, name: str, amount: str) -> None:
    for each in added(TWO, labels=[], resources=[text]):
        status = node_object.status(each, now="2026-01-01T00:00:00Z")
        assert status["allocatable"][name] == status["capacity"][name] == amount


def test_without_additions_nodes_are_as_they_were() -> None:
    assert added(TWO, labels=[], resources=[]) == TWO


@pytest.mark.parametrize(
    ("labels", "resources", "message"),
    [
        (["rack"], [], "--node-label 'rack': not a label; allowed: KEY=VALUE, as in example.com/rack=r1"),
        (["a b=c"], [], "--node-label 'a b=c': not a label"),
        (["a=" + "v" * 64], [], "not a label"),
        ([], ["cpu"], "--node-resource 'cpu': not a resource with its amount; allowed: NAME=QUANTITY"),
        ([], ["cpu=many"], "--node-resource 'cpu=many': "),
        ([], ["example.com/npu=-1"], "--node-resource 'example.com/npu=-1': "),
        ([], ["example.com/npu=1500m"], "--node-resource 'example.com/npu=1500m': "),
        ([], ["cpu=9999999999999"], "not between 0 and 1099511627776"),
        ([], ["nvidia.com/gpu=8"], "GPUs are given by --nodes"),
        ([], ["nvidia.com/mig-1g.10gb=8"], "GPUs are given by --nodes"),
        (["a=b"] * 65, [], "--node-label: given 65 times; 64 times at most"),
    ],
)
def test_what_is_no_label_or_amount_is_refused_with_what_is_allowed(
    labels: list[str], resources: list[str], message: str
) -> None:
    with pytest.raises(MalformedAddition) as refused:
        added(TWO, labels=labels, resources=resources)
    assert message in str(refused.value)


FOUR = NodeShape(name="node-0", cards_mib=(1024,) * 4)
CARDS = make_devices(FOUR, seed=1)
SLICE = "nvidia.com/mig-1g.10gb"


def test_the_first_free_devices_are_given() -> None:
    manager = DeviceManager(CARDS)
    assert manager.allocate("p", "main", 2) == CARDS[:2]
    assert manager.allocate("q", "main", 1) == CARDS[2:3]
    manager.free("p")
    assert manager.allocate("r", "main", 3) == (CARDS[0], CARDS[1], CARDS[3])


def test_a_shortage_says_how_many_are_free_and_takes_none() -> None:
    manager = DeviceManager(CARDS)
    manager.allocate("p", "main", 3)
    assert manager.allocate("q", "main", 2) == Shortage(requested=2, available=1)
    assert manager.held_by_pod("q") == ()


def test_lent_devices_come_first_and_are_not_given_to_others() -> None:
    manager = DeviceManager(CARDS)
    lent = manager.allocate("p", "init", 2)
    assert isinstance(lent, tuple)
    assert manager.allocate("p", "main", 3, lent=lent) == CARDS[:3]
    assert manager.held_by_pod("p") == CARDS[:3]
    assert manager.allocate("q", "main", 2) == Shortage(requested=2, available=1)


MIXED = make_devices(NodeShape(name="node-0", cards_mib=(1024,), slices=("1g.10gb", "1g.10gb", "3g.40gb")), seed=1)


def test_slices_stand_behind_the_cards_with_what_their_profile_says() -> None:
    assert [(device.index, device.mem_mib, device.resource) for device in MIXED] == [
        (0, 1024, "nvidia.com/gpu"),
        (1, 10240, "nvidia.com/mig-1g.10gb"),
        (2, 10240, "nvidia.com/mig-1g.10gb"),
        (3, 40960, "nvidia.com/mig-3g.40gb"),
    ]
    assert [device.is_slice for device in MIXED] == [False, True, True, True]
    assert all(device.uuid.startswith("MIG-") for device in MIXED[1:])


def test_by_the_strategy_single_slices_are_handed_out_as_gpus() -> None:
    shape = NodeShape(name="node-0", slices=("1g.10gb",) * 2, is_single=True)
    assert [(d.resource, d.is_slice) for d in make_devices(shape, seed=1)] == [("nvidia.com/gpu", True)] * 2


def test_a_container_may_have_devices_of_several_kinds() -> None:
    manager = DeviceManager(MIXED)
    assert manager.allocate("p", "main", 1) == MIXED[:1]
    assert manager.allocate("p", "main", 2, resource=SLICE) == MIXED[1:3]
    assert manager.allocate("p", "main", 2, resource=SLICE) == MIXED[1:3]
    assert manager.held("p", "main") == MIXED[:3]
    assert manager.allocate("q", "main", 1, resource=SLICE, lent=MIXED[:1]) == Shortage(requested=1, available=0)
    assert manager.resources == ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb")
    manager.ill = {MIXED[1].uuid}
    assert manager.well(SLICE) == 1


CHECKPOINT_CARDS = make_devices(NodeShape(name="node-0", cards_mib=(1024,) * 4), seed=1)


def manager(checkpoints: Checkpoints, *, reverse: bool = False) -> DeviceManager:
    made = DeviceManager(
        CHECKPOINT_CARDS[::-1] if reverse else CHECKPOINT_CARDS, lambda held: checkpoints.save("node-0", held)
    )
    made.restore(checkpoints.load("node-0", CHECKPOINT_CARDS))
    return made


def test_after_a_restart_a_container_is_given_what_it_had(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "nodes")
    before = manager(checkpoints)
    before.allocate("p", "main", 2)
    before.allocate("q", "main", 1)
    before.free("q")
    after = manager(checkpoints, reverse=True)
    assert after.pods == {"p"}
    assert after.allocate("q", "main", 1) == CHECKPOINT_CARDS[3:]
    assert after.allocate("p", "main", 2) == CHECKPOINT_CARDS[:2]


@pytest.mark.parametrize("text", ['{"p/main": [4]}', '{"p/main": [-1]}', '{"p/main": 1}', "{", "[]"])
def test_a_file_that_is_not_of_this_node_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "node-0.json").write_text(text)
    with pytest.raises(BadCheckpoint, match=r"node-0\.json: not what a node with 4 GPUs gave out"):
        Checkpoints(tmp_path).load("node-0", CHECKPOINT_CARDS)


ENVIRONMENT_CARDS = (Device(0, "GPU-a", 1024), Device(1, "GPU-b", 1024))


def resolve(
    container: dict[str, Any], *, sources: dict[str, dict[str, str]] | None = None, **more: Any
) -> dict[str, str] | MissingSource:
    annotations = {"devices": "GPU-a", "a'b": "quoted"}
    raw = {"metadata": {"name": "p", "namespace": "team", "uid": "u", "annotations": annotations}}
    pod = msgspec.convert({**raw, "spec": {"nodeName": "n", "containers": [{"name": "main", **container}]}}, Pod)
    (converted,) = pod.spec.containers
    found: dict[tuple[str, str], dict[str, str] | None] = dict.fromkeys(containers.sources_of(converted))
    for key, data in (sources or {}).items():
        kind, _, name = key.partition("/")
        found[kind, name] = data
    assigned, image = more.get("assigned", ()), more.get("image", {})
    return containers.resolve(pod, converted, sources=found, assigned=assigned, image=image)


def entry(name: str, **value_from: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": value_from}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)"}], {"A": "1", "B": "1-$(C)-$(A)"}),
        ([entry("A", fieldRef={"fieldPath": "metadata.annotations['devices']"})], {"A": "GPU-a"}),
        ([entry("A", fieldRef={"fieldPath": "metadata.annotations['missing']"})], {"A": ""}),
        ([entry("A", fieldRef={"fieldPath": "metadata.uid"})], {"A": "u"}),
        ([entry("A", configMapKeyRef={"name": "m", "key": "k"})], {"A": "from-map"}),
        ([entry("A", secretKeyRef={"name": "s", "key": "k"})], {"A": "from-secret"}),
        ([entry("A", configMapKeyRef={"name": "gone", "key": "k", "optional": True})], {}),
        ([entry("A", resourceFieldRef={"resource": "limits.cpu"})], {"A": ""}),
    ],
)
def test_entries_resolve(env: list[dict[str, Any]], expected: dict[str, str]) -> None:
    sources = {"configmap/m": {"k": "from-map"}, "secret/s": {"k": "from-secret"}}
    assert resolve({"env": env}, sources=sources) == expected


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"env": [entry("A", configMapKeyRef={"name": "gone", "key": "k"})]}, 'configmap "gone" not found'),
        (
            {"env": [entry("A", configMapKeyRef={"name": "m", "key": "other"})]},
            "couldn't find key other in configmap team/m",
        ),
        ({"env": [entry("A", secretKeyRef={"name": "gone", "key": "k"})]}, 'secret "gone" not found'),
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found'),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
    ],
)
def test_what_is_not_there_is_named(container: dict[str, Any], message: str) -> None:
    assert resolve(container, sources={"configmap/m": {"k": "v"}}) == MissingSource(message)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, "GPU-a"),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, "map"),
        ({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "own"}]}, "own"),
        (
            {"envFrom": [{"configMapRef": {"name": "m"}}], "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "own"}]},
            "own",
        ),
    ],
)
def test_later_wins_image_then_device_plugin_then_env_from_then_env(container: dict[str, Any], expected: str) -> None:
    env = resolve(
        container,
        sources={"configmap/m": {"NVIDIA_VISIBLE_DEVICES": "map"}},
        assigned=ENVIRONMENT_CARDS[:1],
        image={"NVIDIA_VISIBLE_DEVICES": "all"},
    )
    assert isinstance(env, dict)
    assert env["NVIDIA_VISIBLE_DEVICES"] == expected


def test_env_from_with_a_prefix_and_an_optional_one_that_is_gone() -> None:
    bulk = [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"configMapRef": {"name": "gone", "optional": True}}]
    assert resolve({"envFrom": bulk}, sources={"configmap/m": {"K": "v"}}) == {"P_K": "v"}


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, ()),
        ("", ()),
        ("void", ()),
        ("none", ()),
        ("all", (0, 1)),
        ("GPU-b", (1,)),
        ("GPU-b,GPU-a", (0, 1)),
        ("0", (0,)),
        ("k8s.device-plugin.nvidia.com/gpu=GPU-b", (1,)),
        ("GPU-a,GPU-a", (0,)),
    ],
)
def test_the_runtime_shows_what_the_variable_names(value: str | None, indices: tuple[int, ...]) -> None:
    seen = containers.visible(value, ENVIRONMENT_CARDS)
    assert not isinstance(seen, UnknownDevice)
    assert tuple(device.index for device in seen) == indices


@pytest.mark.parametrize(("value", "unknown"), [("GPU-x", "GPU-x"), ("GPU-a,", ""), ("2", "2"), ("ALL", "ALL")])
def test_an_unknown_device_is_named(value: str, unknown: str) -> None:
    assert containers.visible(value, ENVIRONMENT_CARDS) == UnknownDevice(unknown)


def pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], **spec}}, Pod)


def container(cpu: str = "", *, limit: str = "", restart: str | None = None) -> dict[str, Any]:
    requests = {"cpu": cpu} if cpu else {}
    limits = {"cpu": limit} if limit else {}
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, "restartPolicy": restart}


@pytest.mark.parametrize(
    ("spec", "cpu_milli"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container(limit="2")]}, 2000),
        ({"containers": [container("1", limit="2")]}, 1000),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3000),
        ({"containers": [container("1")], "initContainers": [container("3", restart="Always")]}, 4000),
        ({"containers": [container("1")], "initContainers": [container("1", restart="Always"), container("5")]}, 6000),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
)
def test_requests_add_up_as_kubelet_adds_them(spec: dict[str, Any], cpu_milli: int) -> None:
    assert pod_admission.requests(pod(**spec))["cpu"] == cpu_milli


@pytest.mark.parametrize(("cpu", "reason"), [("1500m", None), ("1501m", "OutOfcpu")])
def test_a_pod_is_judged_beside_those_that_are_there(cpu: str, reason: str | None) -> None:
    shape = NodeShape(name="n", cpu_milli=2000)
    refusal = pod_admission.judge(pod(containers=[container(cpu)]), [pod(containers=[container("500m")])], shape, {})
    assert (refusal.reason if refusal else None) == reason


def test_a_refusal_tells_the_numbers() -> None:
    refusal = pod_admission.judge(pod(containers=[container("3")]), [], NodeShape(name="n", cpu_milli=2000), {})
    assert refusal is not None
    assert "cpu, requested: 3000, used: 0, capacity: 2000" in refusal.message

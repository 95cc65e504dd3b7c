"""Memory caps for NVIDIA's driver: which pods can have them, what containers read, and how the hook takes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import bound_pod, limits
from gpu.grant import DeviceGrant, Grant
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translation import GivenDevice, Translation, Wishes
from tests.gpu import memoryhook
from tests.gpu.dialects.everyrow import every_row
from wire.core import PodSpec

HALF = NANO_PER_DEVICE // 2
CAPPED = Wishes(memory_cap=True)
MIB_5 = MemoryAsk(5000)


def ref(index: int, kind: ContainerKind = ContainerKind.REGULAR) -> ContainerRef:
    return ContainerRef(kind, index)


def request(*asks: tuple[Ask, ...], init: tuple[Ask, ...] = ()) -> GpuRequest:
    regular = [ContainerRequest(ref(index), each) for index, each in enumerate(asks) if each]
    return GpuRequest((*regular, *([ContainerRequest(ref(0, ContainerKind.INIT), init)] if init else [])))


def said(first: GpuRequest, *others: GpuRequest, wishes: Wishes = CAPPED) -> Translation:
    return Translation(dialect="hami", request=first, alternatives=others, wishes=wishes)


def cards(*mem_mib: int) -> list[GivenDevice]:
    return [GivenDevice(f"GPU-{n}", n, mib, HALF) for n, mib in enumerate(mem_mib)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(said(request((MIB_5,))), ("c0",), id="memory"),
        pytest.param(said(request((FractionAsk(HALF),))), ("c0",), id="a fraction"),
        pytest.param(said(request((MIB_5,)), wishes=Wishes(mode="mps")), (), id="no cap wished"),
        pytest.param(said(request((MIB_5, MIB_5))), ("c0",), id="two devices alike"),
        pytest.param(said(request((MIB_5, MemoryAsk(7000)))), (), id="two devices with unequal caps"),
        pytest.param(said(request((MIB_5, MemoryAsk(7000, limit_mib=5000)))), ("c0",), id="equal limits"),
        pytest.param(said(request((MIB_5,), (MemoryAsk(7000),))), ("c0", "c1"), id="containers may differ"),
        pytest.param(said(request((MIB_5,), init=(FractionAsk(HALF),))), ("c0", "i0"), id="an init container"),
        pytest.param(said(request((MIB_5,), (WholeAsk(),))), ("c0",), id="a whole device beside it needs none"),
        pytest.param(said(request((MIB_5, WholeAsk()))), (), id="both in one container"),
        pytest.param(said(request((FractionAsk(HALF, profile="1g.5gb"),))), (), id="slices have no hook"),
        pytest.param(said(request((MIB_5,)), request((FractionAsk(HALF),))), ("c0",), id="an alternative alike"),
        pytest.param(said(request((MIB_5,)), request((WholeAsk(),))), (), id="a whole device may take its place"),
        pytest.param(said(request((MIB_5,)), request((), (MIB_5,))), (), id="another container may"),
        pytest.param(said(GpuRequest()), (), id="nothing asked"),
    ],
)
def test_containers_are_capped_where_one_number_says_it_in_each_alternative(
    asked: Translation, expected: tuple[str, ...]
) -> None:
    assert limits.capped(asked) == expected
    assert limits.decided(asked, is_on=True).driver_caps is bool(expected)
    assert limits.decided(msgspec.structs.replace(asked, driver_caps=True), is_on=False).driver_caps is False


@pytest.mark.parametrize(
    ("asked", "devices", "expected"),
    [
        pytest.param(request((MIB_5,)), cards(80000), {"c0": "5000"}, id="memory"),
        pytest.param(request((MIB_5,)), cards(0), {"c0": "5000"}, id="memory of an unknown card"),
        pytest.param(request((MemoryAsk(5000, limit_mib=9000),)), cards(80000), {"c0": "9000"}, id="a limit"),
        pytest.param(request((MemoryAsk(5000, limit_mib=9000),)), cards(8000), {"c0": "8000"}, id="above the card"),
        pytest.param(request((FractionAsk(HALF),)), cards(15109), {"c0": "7554"}, id="a fraction, floored"),
        pytest.param(request((FractionAsk(HALF),)), cards(0), {}, id="a fraction of an unknown card"),
        pytest.param(request((FractionAsk(1),)), cards(15109), {}, id="less than a MiB"),
        pytest.param(request((FractionAsk(HALF),) * 2), cards(80000, 40000), {"c0": "20000"}, id="the least"),
        pytest.param(request((MIB_5,), (FractionAsk(HALF),)), cards(80000, 80000), {"c0": "5000", "c1": "40000"}),
    ],
)
def test_a_cap_is_what_the_container_asked_of_the_card_that_it_got(
    asked: GpuRequest, devices: list[GivenDevice], expected: dict[str, str]
) -> None:
    written = limits.env(asked, devices)
    assert {key: env["NVIDIA_GPU_MEMORY_LIMIT"] for key, env in written.items()} == expected
    assert all(memoryhook.limits(env) == (0, int(expected[key])) for key, env in written.items())


@pytest.mark.parametrize("env", [{"NVIDIA_GPU_MEMORY_LIMIT": ""}, {"NVIDIA_GPU_MEMORY_LIMIT": "5Gi"}])
def test_the_hook_refuses_a_container_whose_cap_is_empty_or_no_number(env: dict[str, str]) -> None:
    with pytest.raises(memoryhook.Refused):
        memoryhook.limits(env)


def test_a_limit_alone_would_be_a_soft_limit_as_well() -> None:
    assert memoryhook.limits({"NVIDIA_GPU_MEMORY_LIMIT": "5000"}) == (5000, 5000)


def test_every_form_that_wishes_a_cap_reads_what_its_binding_says() -> None:
    """Over all rows of the translation table; ten dialects are not all capped, but none reads an empty value."""
    dialects = set()
    for case in every_row():
        found = combine.translate(case.pod, msgspec.structs.replace(case.settings, driver_memory_caps=True))
        if not isinstance(found, Translation) or not found.driver_caps:
            continue
        dialects.add(found.dialect)
        reads = bound_pod.env_names(found)
        for way in (found.request, *found.alternatives):
            devices = [GivenDevice(f"GPU-{n}", n, 80000, HALF) for n in range(len(way.shared))]
            grant = Grant("a", tuple(DeviceGrant(f"g{n}", "R", d.uuid, HALF) for n, d in enumerate(devices)))
            taken = msgspec.structs.replace(found, request=way)
            written = bound_pod.bound_metadata(taken, grant, devices, node="n", at_ns=1).annotations
            for key in limits.capped(found):
                assert {*limits.VARIABLES} <= {*reads[key]}
                env = {name: written.get(limits.env_key(key, name), "") for name in limits.VARIABLES}
                assert memoryhook.limits(env) == (0, int(limits.env(way, devices)[key]["NVIDIA_GPU_MEMORY_LIMIT"]))
    assert dialects >= {"hami", "volcano", "koordinator", "nvfractions", "metagpu", "clearml"}


def variable(path: str, name: str = "NVIDIA_GPU_MEMORY_LIMIT") -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


C0 = "metadata.annotations['env.moorage.dev/c0.NVIDIA_GPU_MEMORY_LIMIT']"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([], False),
        ([variable(C0)], True),
        ([{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "5000"}], False),
        ([variable(C0.replace("c0", "c1"))], False),
        ([variable(C0, "OTHER")], False),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_spec_tells_whether_caps_are_read(env: list[dict[str, Any]], expected: bool, kind: str) -> None:
    if kind == "initContainers":
        env = msgspec.json.decode(msgspec.json.encode(env).replace(b"/c", b"/i"))
    spec = msgspec.convert({"containers": [], kind: [{"name": "main", "env": env}]}, PodSpec)
    assert limits.are_read(spec) is expected

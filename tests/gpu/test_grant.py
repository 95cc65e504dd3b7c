from __future__ import annotations

import msgspec
import pytest

from gpu import grant, reservation
from gpu.grant import DeviceGrant, Grant, shared_metadata
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from wire.core import Pod

HALF = 500_000_000
ONE = DeviceGrant("g", "R-g", "GPU-a", HALF)
TWO = DeviceGrant("h", "R-h", "GPU-b", 250_000_000)


def asking(*asks: Ask, kind: ContainerKind = ContainerKind.REGULAR, index: int = 0) -> ContainerRequest:
    return ContainerRequest(ContainerRef(kind, index), asks)


def test_the_binding_of_one_share_says_all_in_kais_words_and_ours() -> None:
    said = grant.shared_metadata(Grant("attempt", (ONE,)), GpuRequest((asking(FractionAsk(HALF)),)))
    assert said.labels == {"runai-gpu-group": "g"}
    assert said.annotations["received-resource-type"] == "Fraction"
    assert said.annotations["moorage.dev/visible-devices.c0"] == "GPU-a"
    assert said.annotations["moorage.dev/gpu-portion"] == "0.50"
    assert grant.read(said.annotations) == Grant("attempt", (ONE,))


def test_a_portion_of_memory_is_rounded_up() -> None:
    device = msgspec.structs.replace(ONE, nano=132_371_435)
    said = grant.shared_metadata(Grant("attempt", (device,)), GpuRequest((asking(MemoryAsk(2000)),)))
    assert said.annotations["moorage.dev/gpu-portion"] == "0.14"


def test_devices_are_dealt_to_containers_in_the_order_of_their_asks() -> None:
    request = GpuRequest(
        (
            asking(FractionAsk(HALF), kind=ContainerKind.INIT, index=1),
            asking(WholeAsk(), index=0),
            asking(MemoryAsk(100), index=2),
        )
    )
    said = grant.shared_metadata(Grant("attempt", (ONE, TWO)), request).annotations
    shown = {key: value for key, value in said.items() if "visible-devices" in key}
    assert shown == {"moorage.dev/visible-devices.i1": "GPU-a", "moorage.dev/visible-devices.c2": "GPU-b"}


def test_with_cdi_the_container_reads_other_names_and_the_grant_says_the_same() -> None:
    given = Grant("attempt", (ONE, TWO))
    request = GpuRequest((asking(FractionAsk(HALF), MemoryAsk(100)),))
    said = grant.shared_metadata(given, request, cdi=True).annotations
    kind = "k8s.device-plugin.nvidia.com/gpu="
    assert said.pop("moorage.dev/visible-devices.c0") == f"{kind}GPU-a,{kind}GPU-b"
    plain = grant.shared_metadata(given, request).annotations
    assert plain.pop("moorage.dev/visible-devices.c0") == "GPU-a,GPU-b"
    assert said == plain


def test_several_groups_have_a_label_each_and_no_plain_one() -> None:
    labels = grant.group_labels(["g", "h"])
    assert labels == {"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"}
    assert grant.labelled_groups(labels) == ("g", "h")
    assert grant.labelled_groups({"runai-gpu-group": "g", "app": "x"}) == ("g",)
    assert grant.labelled_groups(None) == ()


@pytest.mark.parametrize(("ask", "kind"), [(WholeAsk(), "Regular"), (MigAsk("1g.5gb"), "MigInstance")])
def test_without_shares_only_the_kind_is_said(ask: Ask, kind: str) -> None:
    said = grant.whole_metadata(GpuRequest((asking(ask),)))
    assert (said.labels, said.annotations) == ({}, {"received-resource-type": kind})


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        "{",
        '{"attempt": "a"}',
        '{"attempt": "a", "devices": [], "x": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"attempt": "a", "devices": [{"group": "g", "reservation": "R", "uuid": "U", "nano": 0}]}',
        '{"attempt": "a", "devices": [{"group": "g", "reservation": "R", "uuid": "U", "nano": 1000000001}]}',
        '{"attempt": "a", "devices": [{"group": "g", "reservation": "R", "uuid": "U", "nano": 0.5}]}',
        '{"attempt": "a", "devices": [{"group": "g", "reservation": "R", "uuid": "U", "nano": 1, "resource": "cpu"}]}',
    ],
    ids=lambda text: str(text)[:100],
)
def test_what_is_no_grant_is_none(text: str | None) -> None:
    assert grant.read({"moorage.dev/grant": text} if text is not None else None) is None


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_a_grant_names_the_kind_of_device_where_it_is_no_card(resource: str) -> None:
    limits = {"containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}]}
    held = reservation.read(msgspec.json.decode(msgspec.json.encode({"spec": limits}), type=Pod))
    made = Grant("a", (DeviceGrant("g", "R", "U", 5, held.resource),))
    written = shared_metadata(made, GpuRequest((asking(FractionAsk(5)),))).annotations
    assert grant.read(written) == made
    assert ("resource" in written["moorage.dev/grant"]) == (resource != "nvidia.com/gpu")

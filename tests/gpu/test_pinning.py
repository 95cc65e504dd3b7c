"""Which devices a pod takes, how containers are told of them, and which containers share one."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import container_devices
from gpu.colocation import MOST_ALTERNATIVES, seat_name, seatings
from gpu.container_devices import Identity, Pin, hint, hinted, pins
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Cards, Translation
from wire.api_groups import ClusterPolicy

# Which devices a pod takes that names an index, UUIDs, or UUIDs that it does not want.


@pytest.mark.parametrize(
    ("pin", "is_taken"),
    [
        (Pin(), True),
        (Pin(index=1), True),
        (Pin(index=0), False),
        (Pin(uuids=("GPU-a", "GPU-b")), True),
        (Pin(uuids=("GPU-b",)), False),
        (Pin(not_uuids=("GPU-b",)), True),
        (Pin(not_uuids=("GPU-a",)), False),
        (Pin(index=1, uuids=("GPU-a",), not_uuids=("GPU-a",)), False),
        (Pin(index=0, uuids=("GPU-a",)), False),
    ],
)
def test_a_device_is_taken_if_index_uuids_and_exclusions_allow_it(pin: Pin, is_taken: bool) -> None:
    assert pin.takes(Identity("GPU-a", 1)) is is_taken


@pytest.mark.parametrize(
    ("pin", "is_any"),
    [(Pin(), True), (Pin(index=0), False), (Pin(uuids=("GPU-a",)), False), (Pin(not_uuids=("GPU-a",)), False)],
)
def test_every_device_will_do_where_nothing_is_said(pin: Pin, is_any: bool) -> None:
    assert pin.is_any is is_any


def test_each_device_of_a_request_has_its_own_index_and_the_uuids_of_the_pod() -> None:
    asks = (FractionAsk(1, index=3), MemoryAsk(1))
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks),))
    cards = Cards(uuids=("GPU-a", "GPU-b"), not_uuids=("GPU-b",))
    assert pins(Translation(dialect="hami", request=request, cards=cards)) == [
        Pin(3, ("GPU-a", "GPU-b"), ("GPU-b",)),
        Pin(-1, ("GPU-a", "GPU-b"), ("GPU-b",)),
    ]


@pytest.mark.parametrize(
    ("pin", "text"),
    [
        (Pin(), ""),
        (Pin(not_uuids=("GPU-a",)), ""),
        (Pin(index=0), "0"),
        (Pin(index=3, uuids=("GPU-a",)), "GPU-a"),
        (Pin(uuids=("GPU-a", "MIG-b")), "GPU-a,MIG-b"),
        (Pin(uuids=("GPU-a", "GPU-b"), not_uuids=("GPU-a",)), "GPU-b"),
        (Pin(uuids=("not one", "GPU-a")), "GPU-a"),
        (Pin(uuids=tuple(f"GPU-{number}" for number in range(100))), ",".join(f"GPU-{each}" for each in range(64))),
    ],
)
def test_a_hint_names_what_is_wanted_and_is_read_as_it_was_written(pin: Pin, text: str) -> None:
    assert hint(pin) == text
    assert hint(hinted(text)) == text


@pytest.mark.parametrize(
    "text", ["", "x", "GPU-a/../b", "-1", "12345", "\u0663", "GPU-" + "a" * 100_000, "," * 100_000]
)
def test_what_is_no_hint_names_no_device(text: str) -> None:
    assert hinted(text).is_any


def policy(version: str | None = None, **fields: Any) -> ClusterPolicy:
    labels = {} if version is None else {"app.kubernetes.io/version": version}
    raw = {"metadata": {"name": "cluster-policy", "labels": labels}, "spec": {"cdi": fields}}
    return msgspec.convert(raw, ClusterPolicy)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(None, False, id="no-operator"),
        pytest.param(ClusterPolicy(), False, id="says-nothing"),
        pytest.param(msgspec.convert({"spec": {"cdi": None}}, ClusterPolicy), False, id="null"),
        pytest.param(policy("v25.10.0"), False, id="not-said"),
        pytest.param(policy("v25.10.0", enabled=False, default=True), False, id="off"),
        pytest.param(policy("v25.10.0", enabled=None, default=True), False, id="null-enabled"),
        pytest.param(policy("v25.10.0", enabled=True), True, id="from-this-version-on"),
        pytest.param(policy("v25.10.1", enabled=True, default=False), True, id="later-patch"),
        pytest.param(policy("v26.3.0-rc.1", enabled=True), True, id="later-candidate"),
        pytest.param(policy("v26.7.0+build.5", enabled=True), True, id="later-build"),
        pytest.param(policy("v26", enabled=True), True, id="shorthand"),
        pytest.param(policy("v25.10", enabled=True), True, id="shorthand-of-this-version"),
        pytest.param(policy("v25.10.0-rc.1", enabled=True), False, id="candidate-is-before"),
        pytest.param(policy("v25.3.4", enabled=True), False, id="before"),
        pytest.param(policy("v25.3.4", enabled=True, default=True), True, id="before-with-default"),
        pytest.param(policy("v9.99.99", enabled=True), False, id="numbers-not-text"),
        pytest.param(policy(None, enabled=True), False, id="no-label"),
        pytest.param(policy(None, enabled=True, default=True), True, id="no-label-with-default"),
        pytest.param(policy("25.10.0", enabled=True), False, id="no-v"),
        pytest.param(policy("v025.10.0", enabled=True), False, id="leading-zero"),
        pytest.param(policy("v26.٣.0", enabled=True), False, id="other-digits"),
        pytest.param(policy("latest", enabled=True), False, id="no-version"),
    ],
)
def test_cdi_is_on_by_kais_rule(found: ClusterPolicy | None, expected: bool) -> None:
    assert container_devices.is_on(found) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, False),
        (policy("v26.3.0", enabled=True), False),
        (policy("v26.3.0", enabled=True, nriPluginEnabled=True), True),
        (policy("v26.3.0", enabled=False, nriPluginEnabled=True), False),
    ],
)
def test_the_nri_plugin_needs_cdi(found: ClusterPolicy | None, expected: bool) -> None:
    assert container_devices.has_nri_plugin(found) is expected


def test_each_device_of_a_list_is_named_in_full() -> None:
    assert container_devices.listed(["GPU-a", "MIG-b"], cdi=False) == "GPU-a,MIG-b"
    kind = "k8s.device-plugin.nvidia.com/gpu="
    assert container_devices.listed(["GPU-a", "MIG-b"], cdi=True) == f"{kind}GPU-a,{kind}MIG-b"


UID = "0d2f3a5e-0000-4000-8000-000000000001"
#: A qualified name: vendor, class, and a name that begins with a letter or a digit (CDI specification).
QUALIFIED = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")
#: CDI files of a node: the device plug-in's, ours, and what a default kind may have.
PLUGIN, VIEW, DEFAULT = "k8s.device-plugin.nvidia.com/gpu=", "moorage.dev/view=", "management.nvidia.com/gpu="
FILES = {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}", f"{DEFAULT}all"}


class Refused(Exception):
    """Raised where the runtime starts no container."""


def mounted(variable: str, mode: str) -> set[str]:
    """What NVIDIA's runtime mounts for a value of NVIDIA_VISIBLE_DEVICES. Raises Refused.

    Restates internal/modifier/cdi.go and internal/info/auto.go of nvidia-container-toolkit: in mode ``auto`` CDI is
    used where every name is qualified. In mode ``legacy`` each name is the UUID or the index of a GPU.
    """
    given = variable.split(",")
    if mode == "auto":
        mode = "cdi" if all(map(QUALIFIED.fullmatch, given)) else "legacy"
    if mode == "legacy":
        if any(not each.startswith(("GPU-", "MIG-")) for each in given):
            raise Refused
        return set(given)
    resolved = {each if QUALIFIED.fullmatch(each) else DEFAULT + each for each in given}
    if not resolved <= FILES:
        raise Refused
    return resolved


@pytest.mark.parametrize(
    ("has_cdi", "beside", "mode", "there"),
    [
        (True, [VIEW + UID], "cdi", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}"}),
        (True, [VIEW + UID], "auto", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}"}),
        (True, [], "auto", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b"}),
        (False, [VIEW + UID], "auto", {"GPU-a", "MIG-b"}),
        (False, [VIEW + UID], "legacy", {"GPU-a", "MIG-b"}),
    ],
)
def test_the_runtime_mounts_gpus_and_the_view_or_gpus_alone(
    has_cdi: bool, beside: list[str], mode: str, there: set[str]
) -> None:
    assert mounted(container_devices.listed(["GPU-a", "MIG-b"], cdi=has_cdi, beside=beside), mode) == there


@pytest.mark.parametrize("mode", ["auto", "cdi", "legacy"])
def test_a_mix_of_both_forms_would_start_no_container(mode: str) -> None:
    with pytest.raises(Refused):
        mounted(f"GPU-a,{VIEW}{UID}", mode)


@pytest.mark.parametrize("has_cdi", [True, False])
def test_all_names_of_a_container_are_of_one_form(has_cdi: bool) -> None:
    names = container_devices.listed(["GPU-a", "MIG-b"], cdi=has_cdi, beside=[VIEW + UID]).split(",")
    assert {bool(QUALIFIED.fullmatch(name)) for name in names} == {has_cdi}
    # NVIDIA's runtime makes devices of this vendor itself, and refuses them beside others.
    assert not any(name.startswith("runtime.nvidia.com/") for name in names)


FULL = FractionAsk(NANO_PER_DEVICE)


def part(percent: int, seat: str = "", index: int = -1) -> FractionAsk:
    return FractionAsk(percent * 10_000_000, seat, index)


def request(
    *containers: tuple[Ask, ...], init: tuple[tuple[Ask, ...], ...] = (), is_sidecar: bool = False
) -> GpuRequest:
    regular = [ContainerRequest(ContainerRef(ContainerKind.REGULAR, n), asks) for n, asks in enumerate(containers)]
    before = [ContainerRequest(ContainerRef(ContainerKind.INIT, n), asks, is_sidecar) for n, asks in enumerate(init)]
    return GpuRequest((*regular, *before))


@pytest.mark.parametrize(
    ("asked", "ways"),
    [
        (request((part(30),), (part(40),)), ["a a", "- -"]),
        (request((part(60),), (part(50),)), ["- -"]),
        (request((part(30),), (part(40),), (part(50),)), ["a a -", "a - a", "- a a", "- - -"]),
        (request((FULL, part(50)), (part(30),)), ["- a a", "- - -"]),
        (request((part(30), part(30)), (part(30),)), ["a - a", "- a a", "- - -"]),
        (request((MemoryAsk(5),), (MemoryAsk(7),)), ["a a", "- -"]),
        (request((part(30),), (MemoryAsk(7),)), ["- -"]),
        (request((MemoryAsk(5, compute_percent=60),), (MemoryAsk(7, compute_percent=50),)), ["- -"]),
        (request((MemoryAsk(5, compute_percent=60),), (MemoryAsk(7, compute_percent=40),)), ["a a", "- -"]),
        (request((part(90),), init=((part(90),),)), ["a a", "- -"]),
        (request((part(90),), init=((part(90),),), is_sidecar=True), ["- -"]),
        (request((part(30), part(30))), ["- -"]),
        (request((WholeAsk(),), (part(30),)), ["- -"]),
        (request((part(30, index=1),), (part(40),)), ["- -"]),
        (request((part(30, "x"),), (part(40),)), ["x -"]),
        (GpuRequest(()), [""]),
        (request(*[(part(30),)] * 5), ["a a a b b", "- - - - -"]),
        (request(*[(part(90),)] * 5), ["- - - - -"]),
        # Init containers that end are one after the other; those that go on running are beside all that follow.
        (request(*[(part(20),)] * 4, init=((part(90),), (part(90),))), ["a a a a a a", "- - - - - -"]),
        (request(*[(part(20),)] * 4, init=((part(30),),), is_sidecar=True), ["a a a a -", "- - - - -"]),
        (request((part(70),), *[(part(10),)] * 3, init=((part(60),),), is_sidecar=True), ["a a a a -", "- - - - -"]),
        (request(*[(MemoryAsk(5, compute_percent=40),)] * 5), ["a a b b -", "- - - - -"]),
    ],
)
def test_containers_meet_wherever_one_device_can_hold_them(asked: GpuRequest, ways: list[str]) -> None:
    told = [
        " ".join(getattr(ask, "seat", "") or "-" for container in way.containers for ask in container.asks)
        for way in seatings(asked, together=True)
    ]
    assert told == ways


@pytest.mark.parametrize(("ends", "ways"), [(40, ["a a a a a a", "- - - - - -"]), (41, ["a a a a a -", "- - - - - -"])])
def test_an_init_container_that_ends_is_beside_the_sidecars_before_it(ends: int, ways: list[str]) -> None:
    regular = [ContainerRequest(ContainerRef(ContainerKind.REGULAR, n), (part(10),)) for n in range(4)]
    before = [
        ContainerRequest(ContainerRef(ContainerKind.INIT, 0), (part(60),), True),
        ContainerRequest(ContainerRef(ContainerKind.INIT, 1), (part(ends),)),
    ]
    told = [
        " ".join(getattr(ask, "seat", "") or "-" for container in way.containers for ask in container.asks)
        for way in seatings(GpuRequest((*regular, *before)), together=True)
    ]
    assert told == ways


def test_a_system_that_spreads_prefers_devices_of_their_own() -> None:
    asked = request((part(30),), (part(40),))
    assert seatings(asked, together=False) == tuple(reversed(seatings(asked, together=True)))


def test_seats_beyond_the_alphabet_have_numbers() -> None:
    assert [seat_name(number) for number in (0, 25, 26)] == ["a", "z", "s26"]


ASKS = st.one_of(
    st.integers(1, NANO_PER_DEVICE).map(FractionAsk), st.integers(1, 9).map(MemoryAsk), st.just(WholeAsk())
)


@given(st.lists(st.lists(ASKS, max_size=4).map(tuple), max_size=6), st.booleans())
def test_ways_differ_in_seats_only_and_no_seat_holds_too_much(asks: list[tuple[Ask, ...]], together: bool) -> None:
    asked = request(*asks)
    ways = seatings(asked, together=together)

    assert 1 <= len(ways) <= MOST_ALTERNATIVES
    assert len(set(ways)) == len(ways)
    assert asked in ways
    for way in ways:
        assert len(way.shared) <= len(asked.shared)
        sums: dict[str, int] = {}
        for container in way.containers:
            seats = [ask.seat for ask in container.asks if isinstance(ask, FractionAsk | MemoryAsk) and ask.seat]
            assert len(set(seats)) == len(seats)
            for ask in container.asks:
                if isinstance(ask, FractionAsk) and ask.seat:
                    sums[ask.seat] = sums.get(ask.seat, 0) + ask.nano
        assert all(total <= NANO_PER_DEVICE for total in sums.values())

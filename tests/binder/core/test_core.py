"""The binder's pure parts: config maps, the manifest of a reservation, and races for one book."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from binder.core.contention import Claimant, Proof, Scene, Why, moves, proofs, unheld, winners
from binder.core.reservation_pod import Authorship, ReservationTemplate, authorship, manifest, manifests
from gpu.book import EMPTY
from gpu.grant import DeviceGrant, Grant
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from tests.sharing.made import attempt, bound, reservation
from wire import names
from wire.core import ConfigMap

# Whose ConfigMap it is that is there already: the container must see what the attempt that binds has written.

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1"}
DATA = {names.ENV_VISIBLE_DEVICES: "GPU-0"}


def _config_map(
    *, rv: str = "10", data: dict[str, str] | None = None, owner: str = "pod-1", immutable: bool = True
) -> dict[str, Any]:
    annotations = {names.POD_VERSION: rv} if rv else {}
    metadata = {"name": "maps-0", "annotations": annotations, "ownerReferences": [{**OWNER, "uid": owner}]}
    return {"metadata": metadata, "data": DATA if data is None else data, "immutable": immutable}


OTHER = {names.ENV_VISIBLE_DEVICES: "GPU-1"}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (_config_map(), Authorship.OURS),
        (_config_map(data=OTHER), Authorship.RIVAL),
        (_config_map(immutable=False), Authorship.RIVAL),
        (_config_map(rv="9"), Authorship.OLDER),
        (_config_map(rv="9", data=OTHER), Authorship.OLDER),
        (_config_map(rv="11"), Authorship.NEWER),
        (_config_map(rv="100", data=OTHER), Authorship.NEWER),
        (_config_map(rv=""), Authorship.OLDER),
        (_config_map(rv="", data=OTHER), Authorship.OLDER),
        (_config_map(owner="pod-0"), Authorship.FOREIGN),
        (_config_map(rv="9", owner="pod-0"), Authorship.FOREIGN),
        ({"metadata": {"name": "maps-0"}, "data": DATA, "immutable": True}, Authorship.FOREIGN),
    ],
)
def test_only_what_an_attempt_wrote_that_can_not_bind_any_more_is_replaced(
    there: dict[str, Any], expected: Authorship
) -> None:
    assert authorship(msgspec.convert(there, ConfigMap), _config_map()) is expected


@pytest.mark.parametrize(("ask", "portion"), [(FractionAsk(132_371_435), "0.13"), (MemoryAsk(2000), "0.14")])
def test_what_memory_comes_to_is_rounded_up_as_kai_counts_it(ask: Ask, portion: str) -> None:
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (ask,)),))
    grant = Grant("attempt", (DeviceGrant("g", "R-g", "GPU-0", 132_371_435),))
    made, direct = manifests(prefix="maps", pod_name="p", pod_uid="pod-1", rv="10", grant=grant, request=request)
    assert made["immutable"] is direct["immutable"] is True
    assert made["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-0", "RUNAI_NUM_OF_GPUS": portion, "GPU_PORTION": portion}


# Who keeps a device that several use, and who goes.


def tenant(name: str, uuid: str, group: str, *, created: str = "2026-01-01T00:00:00Z", **changes: Any) -> Claimant:
    made = attempt(name, groups=(group,))
    pod = bound(made)
    assert pod.grant is not None
    grant = msgspec.structs.replace(pod.grant, devices=(DeviceGrant(group, f"R-{group}", uuid, 500_000_000),))
    return Claimant(msgspec.structs.replace(pod, grant=grant, **changes), created)


def scene(*parts: Any, **changes: Any) -> Scene:
    held = [part for part in parts if not isinstance(part, Claimant)]
    return Scene(reservations=held, tenants=[part for part in parts if isinstance(part, Claimant)], **changes)


def going(made: Scene) -> list[tuple[str, Why]]:
    claims = made.claims
    return [(move.claimant.pod.name, move.why) for move in moves(made, claims, proofs(made, claims))]


def holds(group: str, uuid: str, **changes: Any) -> Any:
    return reservation(group, uuid=uuid, **changes)


OLD, YOUNG = tenant("old", "A", "g"), tenant("young", "A", "h", created="2026-01-02T00:00:00Z")
LATER = tenant("later", "A", "g", created="2026-01-03T00:00:00Z")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([holds("g", "A"), OLD, LATER], []),
        ([holds("g", "B"), OLD, LATER], []),
        ([OLD, LATER], []),
        # Two groups on one device: who holds it keeps it, however young.
        ([holds("g", "A"), holds("h", "B"), OLD, YOUNG], [("young", Why.SHARED)]),
        ([holds("g", "B"), holds("h", "A"), OLD, YOUNG], [("old", Why.SHARED)]),
        ([holds("g", "B"), holds("h", "A"), OLD, LATER, YOUNG], [("later", Why.SHARED), ("old", Why.SHARED)]),
        # One UUID under two groups, or under none: the older group keeps it.
        ([holds("g", "A"), holds("h", "A"), OLD, YOUNG, LATER], [("young", Why.SHARED)]),
        ([holds("g", "B"), holds("h", "C"), OLD, YOUNG], [("young", Why.SHARED)]),
        ([holds("h", "A", phase="Failed"), OLD, YOUNG], [("young", Why.SHARED)]),
    ],
)
def test_of_two_groups_on_one_device_one_stays_and_nobody_else_is_touched(
    parts: list[Any], expected: list[tuple[str, Why]]
) -> None:
    assert going(scene(*parts)) == expected


@pytest.mark.parametrize(
    ("whole", "capacity", "expected"),
    [
        (0, 2, []),
        (1, 3, []),
        # B is held, and one more: nothing is left of two, so somebody got A.
        (1, 2, ["later", "old"]),
        (2, 2, ["later", "old"]),
        # Capacity is not known.
        (9, 0, []),
    ],
)
def test_tenants_of_a_lost_device_go_when_a_stranger_surely_has_it(
    whole: int, capacity: int, expected: list[str]
) -> None:
    made = scene(holds("g", "B"), OLD, LATER, strangers={"s": whole}, capacity=capacity)
    assert going(made) == [(name, Why.STRANGER) for name in expected]


@pytest.mark.parametrize("parts", [[], [holds("g", "")], [holds("g", "A", phase="Failed")]])
def test_where_a_reservation_can_not_be_made_anew_the_stranger_has_the_device(parts: list[Any]) -> None:
    assert going(scene(*parts, OLD, strangers={"s": 1}, capacity=1)) == [("old", Why.STRANGER)]
    assert going(scene(*parts, OLD, strangers={"s": 1}, capacity=2)) == []


def test_tenants_of_a_device_that_some_reservation_holds_stay_on_a_full_node() -> None:
    assert going(scene(holds("g", "B"), holds("guard", "A"), OLD, capacity=2)) == []


@pytest.mark.parametrize(
    ("there", "holds_still"), [({"s": 1}, True), ({"s": 1, "new": 1}, True), ({"new": 1}, False), ({}, False)]
)
def test_what_was_proved_of_strangers_holds_until_one_of_them_leaves(there: dict[str, int], holds_still: bool) -> None:
    parts = (holds("g", "B"), OLD)
    full = scene(*parts, strangers={"s": 1}, capacity=2)
    proved = proofs(full, full.claims)
    assert proved == {"A": Proof(frozenset({"s"}), 2)}
    now = scene(OLD, strangers=there, capacity=2 + len(there), proofs={"A": Proof(frozenset({"s"}), 4)})
    assert bool(going(now)) == holds_still


def test_a_proof_falls_when_the_node_has_more_devices_than_it_seemed() -> None:
    parts = (holds("g", "B"), OLD)
    proved = proofs(seemed := scene(*parts, strangers={"s": 1}, capacity=2), seemed.claims)
    assert going(scene(*parts, strangers={"s": 1}, capacity=2, proofs=proved)) == [("old", Why.STRANGER)]
    assert going(scene(*parts, strangers={"s": 1}, capacity=3, proofs=proved)) == []


def test_tenants_of_a_device_that_is_ill_go_and_others_stay() -> None:
    other = tenant("other", "B", "i")
    assert going(scene(holds("g", "A"), holds("i", "B"), OLD, LATER, other, ill=frozenset({"A"}))) == [
        ("later", Why.ILL),
        ("old", Why.ILL),
    ]


def test_nobody_is_moved_for_what_a_pod_of_kais_is_said_to_use() -> None:
    kais = Claimant(msgspec.structs.replace(OLD.pod, name="kais", grant=None, groups=("k",)), "2025-01-01T00:00:00Z")
    on_one = scene(holds("g", "A"), holds("k", "A"), OLD, kais)
    assert going(on_one) == []
    assert set(on_one.claims["A"]) == {"g", "k"}
    assert going(scene(holds("k", "A"), OLD, kais)) == []
    # One that is dead is left by all.
    assert [name for name, _ in going(msgspec.structs.replace(on_one, ill=frozenset({"A"})))] == ["old", "kais"]


def test_who_was_found_to_keep_a_device_keeps_it_though_his_oldest_tenant_leaves() -> None:
    here = (holds("g", "B"), holds("h", "C"))
    first = scene(*here, OLD, LATER, YOUNG)
    kept = winners(first, first.claims)
    assert kept == {"A": "g"}
    assert going(scene(*here, LATER, YOUNG)) == [("later", Why.SHARED)]
    assert going(scene(*here, LATER, YOUNG, winners=kept)) == [("young", Why.SHARED)]
    # But not from the group that holds it.
    assert going(scene(holds("h", "A"), LATER, YOUNG, winners=kept)) == [("later", Why.SHARED)]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([holds("g", "A"), OLD], set()),
        ([holds("g", "B"), OLD], {"A"}),
        ([holds("g", "B"), holds("guard", "A"), OLD], set()),
        ([holds("g", "B"), holds("guard", "A", phase="Failed"), OLD], {"A"}),
        # Nobody knows yet what the new reservation holds.
        ([holds("g", ""), OLD], set()),
        ([OLD], set()),
        # A process that does not run may be about to tell another device.
        ([holds("g", "B", alive=False), OLD], set()),
    ],
)
def test_a_device_is_without_a_holder_when_its_reservation_told_another(parts: list[Any], expected: set[str]) -> None:
    made = scene(*parts)
    assert unheld(made, made.claims) == expected


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        # Where the feature is switched off kubelet never names devices: that says nothing.
        ([holds("g", "A", allocated=""), OLD], "", set()),
        ([holds("g", "A", allocated=""), OLD], "B", set()),
        ([holds("g", "A", allocated=""), OLD], "A", {"A"}),
        ([holds("g", "A", allocated="A"), OLD], "A", set()),
        ([holds("g", "A", allocated=""), holds("guard", "A", allocated="A"), OLD], "", set()),
        # Kubelet names its device of one of two other pods.
        (
            [holds("g", "A", allocated=""), holds("h", "", allocated="A"), holds("i", "B", allocated="B"), OLD],
            "",
            {"A"},
        ),
    ],
)
def test_a_device_is_without_a_holder_when_kubelet_names_it_of_others_only(
    parts: list[Any], given: str, expected: set[str]
) -> None:
    made = scene(*parts, given=frozenset(given))
    assert unheld(made, made.claims) == expected


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        ([holds("g", "A", allocated=""), OLD], "A", [("old", Why.STRANGER)]),
        ([holds("g", "B", allocated="B"), OLD], "A", [("old", Why.STRANGER)]),
        ([holds("g", "A", allocated=""), OLD], "B", []),
        # What is said of a pod that has just ended is old.
        ([holds("g", "A", allocated="A"), OLD], "A", []),
        ([holds("g", "A"), OLD], "A", []),
    ],
)
def test_tenants_of_a_device_go_when_kubelet_says_that_it_gave_it_to_a_stranger(
    parts: list[Any], given: str, expected: list[tuple[str, Why]]
) -> None:
    assert going(scene(*parts, strangers={"w": 1}, capacity=9, given=frozenset(given))) == expected


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [
        pytest.param("A", [], id="kubelet says what the tenants were given"),
        pytest.param("B", [("old", Why.STRANGER)], id="kubelet says the same as the process"),
        pytest.param("0", [("old", Why.STRANGER)], id="the device plugin's ids are no UUIDs"),
        pytest.param(None, [("old", Why.STRANGER)], id="kubelet says nothing"),
    ],
)
def test_nobody_goes_for_the_word_of_a_process_that_kubelet_contradicts(
    allocated: str | None, expected: list[tuple[str, Why]]
) -> None:
    full = scene(holds("g", "B", allocated=allocated), OLD, strangers={"w": 1}, capacity=2)
    assert going(full) == expected


SLICE = "nvidia.com/mig-1g.10gb"


def test_each_kind_of_device_is_judged_by_itself() -> None:
    """A card that a stranger has proves nothing of slices, and a reservation of a slice fills no node of cards."""
    grant = OLD.pod.grant
    assert grant is not None
    device = msgspec.structs.replace(grant.devices[0], resource=SLICE)
    pod = msgspec.structs.replace(OLD.pod, grant=msgspec.structs.replace(grant, devices=(device,)))
    of_slice = Claimant(pod, OLD.created)
    assert scene(of_slice).claims == {}
    assert going(scene(of_slice, strangers={"s": 2}, capacity=2)) == []
    assert going(scene(of_slice, strangers={"s": 2}, capacity=2, resource=SLICE)) == [("old", Why.STRANGER)]


@pytest.mark.parametrize(
    ("reservation", "used"),
    [(holds("g", "A"), {"A"}), (holds("g", "A", phase="Failed"), set()), (holds("g", ""), set())],
    ids=["tells it", "has ended", "tells nothing yet"],
)
def test_a_pod_of_kais_uses_what_its_groups_reservation_tells(reservation: Any, used: set[str]) -> None:
    kais = Claimant(msgspec.structs.replace(OLD.pod, grant=None, groups=("g",)), OLD.created)
    assert set(scene(reservation, kais).claims) == used


def test_a_device_that_one_group_was_given_needs_no_keeper() -> None:
    alone = scene(holds("g", "B"), OLD, LATER)
    assert winners(alone, alone.claims) == {}


def test_a_reservation_pod_is_what_pod_security_calls_restricted() -> None:
    spec = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & spec.keys()


def test_nobody_is_preempted_for_a_reservation_pod_and_it_is_no_system_pod() -> None:
    made = yaml.safe_load((Path(__file__).parents[3] / "reservation" / "priorityclass.yaml").read_text())
    assert made["preemptionPolicy"] == "Never"
    assert 0 < made["value"] <= 1_000_000_000
    assert made["globalDefault"] is False


def test_an_administrators_settings_shape_the_reservation_pod() -> None:
    template = ReservationTemplate(
        namespace="ns", service_account="sa", app="mine", image="i", runtime_class="nvidia", priority_class="high",
        resources={"cpu": "1m", names.GPU_RESOURCE: "7"},
    )  # fmt: skip
    made = manifest(template, node="n", group="g", book=EMPTY)
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["labels"] == {"app": "mine", "runai-gpu-group": "g"}
    spec = made["spec"]
    assert (spec["runtimeClassName"], spec["priorityClassName"], spec["serviceAccountName"]) == ("nvidia", "high", "sa")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["terminationGracePeriodSeconds"] == 5
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1m", "nvidia.com/gpu": "1"}
    plain = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert "runtimeClassName" not in plain
    assert "priorityClassName" not in plain

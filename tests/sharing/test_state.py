"""What is known of pods, machines, claims and entries, and why an attempt failed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.attempts import Cause
from gpu.book import Entry
from gpu.container_devices import Identity, Pin
from gpu.reservation import Reservation
from sharing.claims import held_alone, used_by_tenants
from sharing.entries import (
    LEARNS_S,
    LONGEST_SILENCE_S,
    UNSEEN_GRACE_S,
    WRITE_TIMEOUT_S,
    Evidence,
    Judgement,
    is_plain,
    is_suspicious,
    judge,
)
from sharing.failure import other_than_asked
from sharing.outcome import Disputed, Failed, Verified
from sharing.pods import PodView, view
from tests.sharing.made import attempt, bound, pod, reservation
from tests.sizes import sizeof
from wire import names
from wire.core import Pod

ENTRY = Entry(500_000_000, attempt().id, "10", 1000, "team/p")
OLD = WRITE_TIMEOUT_S + 1
#: How long pods with a grace period of 30 s, of 300 s, and those that were never seen are waited for.
SHORT, LONG, UNSEEN = LEARNS_S + 35, LEARNS_S + 305, LEARNS_S + UNSEEN_GRACE_S


def evidence(**changes: Any) -> Evidence:
    times = {"gone_for_s": 0.0, "heard_for_s": 0.0, "seen_for_s": 0.0}
    plain = Evidence(group="g", pod=pod(), last=None, has_request=False, **times)
    return msgspec.structs.replace(plain, **changes)


def heard(for_s: float, *, gone_for_s: float | None = None) -> dict[str, Any]:
    """A pod that vanished, and for how long its machine has been heard of since."""
    return {"pod": None, "gone_for_s": for_s if gone_for_s is None else gone_for_s, "heard_for_s": for_s}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"pod": bound()}, Judgement.LIVE),
        ({"pod": bound(deleting=True)}, Judgement.LIVE),
        # KAI's pods have labels only.
        ({"pod": pod(node="node-1", groups=("g",))}, Judgement.LIVE),
        ({"pod": bound(groups=())}, Judgement.LIVE),
        ({"pod": bound(ended=True)}, Judgement.DEAD),
        ({"pod": pod(node="node-2", groups=("other",))}, Judgement.DEAD),
        ({"pod": pod(node="node-2")}, Judgement.DEAD),
        # Unbound at another version: no Binding at the entry's can land.
        ({"pod": pod(rv="11")}, Judgement.DEAD),
        ({"pod": pod(rv="11"), "has_request": True}, Judgement.DEAD),
        # Unbound at the entry's version.
        ({"has_request": True, "seen_for_s": OLD}, Judgement.LIVE),
        ({"seen_for_s": OLD}, Judgement.FENCE_FIRST),
        ({"seen_for_s": OLD - 1}, Judgement.WAIT),
        # Gone.
        ({"pod": None, "last": pod()}, Judgement.DEAD),
        ({"pod": None, "last": bound(ended=True)}, Judgement.DEAD),
        ({"last": bound(grace_s=30), **heard(30.0)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(float(SHORT))}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(SHORT + 0.1)}, Judgement.DEAD),
        ({"last": bound(grace_s=300), **heard(float(LONG))}, Judgement.WAIT),
        ({"last": bound(grace_s=300), **heard(LONG + 0.1)}, Judgement.DEAD),
        (heard(float(UNSEEN)), Judgement.WAIT),
        (heard(UNSEEN + 0.1), Judgement.DEAD),
        # Ready all the time, though a kubelet that was cut off may not have learned of the deletion yet.
        ({"last": bound(grace_s=30), **heard(35.1)}, Judgement.WAIT),
        ({"last": bound(grace_s=0), **heard(float(LEARNS_S))}, Judgement.WAIT),
        (heard(UNSEEN_GRACE_S + 0.1), Judgement.WAIT),
        # Cut off for 49 s, and deaf for a minute more: it learns of the deletion after 109 s, and takes 30 s to end.
        ({"last": bound(grace_s=30), **heard(49.0 + 60.0 + 30.0)}, Judgement.WAIT),
        # Gone, and its machine is silent, or is heard of again: the kubelet has to learn of the deletion first.
        ({"last": bound(grace_s=30), **heard(0.0, gone_for_s=LONGEST_SILENCE_S)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(float(SHORT), gone_for_s=LONGEST_SILENCE_S)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(SHORT + 0.1, gone_for_s=LONGEST_SILENCE_S)}, Judgement.DEAD),
        (heard(0.0, gone_for_s=LONGEST_SILENCE_S + float(UNSEEN)), Judgement.WAIT),
        (heard(0.0, gone_for_s=LONGEST_SILENCE_S + UNSEEN + 0.1), Judgement.DEAD),
        ({"last": bound(grace_s=300), **heard(0.0, gone_for_s=LONGEST_SILENCE_S + float(LONG))}, Judgement.WAIT),
        ({"last": bound(grace_s=300), **heard(0.0, gone_for_s=LONGEST_SILENCE_S + LONG + 0.1)}, Judgement.DEAD),
    ],
)
def test_an_entry_is_judged_by_what_was_read(found: dict[str, Any], expected: Judgement) -> None:
    assert judge(ENTRY, evidence(**found)) is expected


@pytest.mark.parametrize(
    ("seen", "at_work", "seen_for_s", "expected"),
    [
        (None, True, 0, True),
        (bound(ended=True), True, 0, True),
        (bound(), False, OLD, False),
        (pod(node="node-2"), False, 0, True),
        (pod(rv="11"), True, OLD, False),
        (pod(rv="11"), False, 0, True),
        (pod(), False, 0, False),
        (pod(), False, WRITE_TIMEOUT_S, False),
        (pod(), False, OLD, True),
    ],
)
def test_only_what_looks_dead_costs_reads(
    seen: PodView | None, at_work: bool, seen_for_s: float, expected: bool
) -> None:
    assert is_suspicious(ENTRY, "g", seen, at_work=at_work, seen_for_s=seen_for_s) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (bound(), True),
        # KAI's pods have labels only; ours have a grant, even where somebody took the labels away.
        (pod(node="node-1", groups=("g",)), True),
        (bound(groups=()), True),
        (bound(attempt(groups=("g", "h")), groups=()), True),
        (bound(attempt(groups=("h", "g")), groups=()), True),
        (None, False),
        (pod(groups=("g",)), False),
        (bound(ended=True), False),
        (bound(attempt(groups=("h",))), False),
        (pod(node="node-1"), False),
    ],
)
def test_the_entry_of_a_bound_pod_that_holds_the_group_needs_no_second_look(
    seen: PodView | None, expected: bool
) -> None:
    assert is_plain("g", seen) is expected
    if seen is not None:
        assert seen.holds("g") is ("g" in seen.held_groups)


# What the two LISTs of a verification say: the reservation holds its device alone, and only tenants use it.

HELD = reservation()


def _other(**changes: Any) -> Reservation:
    return reservation("other", uuid=HELD.uuid, **changes)


@pytest.mark.parametrize(
    "there",
    [
        [],
        [reservation("other")],
        [reservation(uid="R-another")],
        [reservation(uuid="GPU-another")],
        [reservation(book=None)],
    ],
    ids=["gone", "another's", "replaced", "of another device", "without a readable book"],
)
def test_a_reservation_that_changed_is_not_verified(there: list[Reservation]) -> None:
    found = held_alone(HELD, there)
    assert isinstance(found, Failed)
    assert "changed" in found.failure.detail


def test_it_is_returned_as_it_is_listed_now() -> None:
    now = reservation(rv="21")
    assert held_alone(HELD, [reservation("other"), now]) is now


@pytest.mark.parametrize(
    ("other", "kind"),
    [(_other(), Failed), (_other(deleting=True), Disputed), (_other(phase="Failed"), Disputed)],
    ids=["lives", "is deleted", "has ended"],
)
def test_another_holder_of_the_device_is_named(other: Reservation, kind: type[Failed | Disputed]) -> None:
    found = held_alone(HELD, [HELD, other])
    assert isinstance(found, kind)
    assert other.name in str(found)


TENANT = attempt("tenant")
#: The device of group "g", and the one of another group.
G, H = attempt("stranger"), attempt("stranger", groups=("h",))


def _grant(**changes: Any) -> Any:
    """A grant of two devices: of another group, then of "g", with these changes."""
    grant = bound(attempt("stranger", groups=("h", "g"))).grant
    assert grant is not None
    return msgspec.structs.replace(
        grant, devices=(grant.devices[0], msgspec.structs.replace(grant.devices[1], **changes))
    )


@pytest.mark.parametrize(
    ("stranger", "says"),
    [
        (pod(H), ""),
        (bound(H), ""),
        (bound(G, ended=True), ""),
        (bound(G), "device GPU-g is used"),
        (bound(G, groups=()), "device GPU-g is used"),
        (bound(G, groups=(), grant=_grant(group="k")), "device GPU-g is used"),
        # It holds another device in the name of this group.
        (bound(G, groups=(), grant=_grant(uuid="GPU-k")), "of group g uses device GPU-k"),
        # KAI's pods have labels only.
        (pod(G, node="node-1", groups=("g",)), "is labelled with group g"),
        (pod(G, node="node-1", groups=("h", "g")), "is labelled with group g"),
        (pod(G, node="node-1", groups=("h",)), ""),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_pod_that_uses_the_device_and_is_not_in_its_book_is_named(stranger: PodView, says: str, before: bool) -> None:
    held = reservation("g", TENANT)
    pods = [stranger, bound(TENANT)] if before else [bound(TENANT), stranger]
    found = used_by_tenants(held, pods)
    if not says:
        assert found == Verified("g")
        return
    assert isinstance(found, Failed)
    assert says in found.failure.detail
    assert "team/stranger" in found.failure.detail


@pytest.mark.parametrize(
    ("tenant", "is_verified"),
    [
        (bound(TENANT), True),
        (pod(TENANT), True),
        (pod(TENANT, node="node-1", groups=("g",)), True),
        (bound(TENANT, grant=_grant(uuid="GPU-k")), False),
    ],
    ids=["bound", "not bound yet", "labelled only", "of another device"],
)
def test_a_tenant_in_the_book_uses_the_device_and_no_other_in_its_groups_name(
    tenant: PodView, is_verified: bool
) -> None:
    assert isinstance(used_by_tenants(reservation("g", TENANT), [tenant]), Verified) is is_verified


def test_whoever_uses_a_device_without_a_book_is_named() -> None:
    assert isinstance(used_by_tenants(reservation("g", book=None), [bound(TENANT)]), Failed)


# Why an attempt failed, in words that name what was asked and what was found.


@pytest.mark.parametrize(
    ("pin", "index", "detail"),
    [
        (Pin(0), 2, "GPU-x with index 2 was opened, the pod takes index 0"),
        (Pin(3), 0, "GPU-x with index 0 was opened, the pod takes index 3"),
        (Pin(3), -1, "GPU-x of unknown index was opened, the pod takes index 3"),
        (Pin(uuids=("GPU-a", "GPU-b")), 1, "GPU-x with index 1 was opened, the pod takes one of GPU-a, GPU-b"),
        (Pin(not_uuids=("GPU-x",)), 1, "GPU-x with index 1 was opened, the pod takes none of GPU-x"),
        (Pin(0, ("GPU-a",)), 1, "GPU-x with index 1 was opened, the pod takes index 0 and one of GPU-a"),
    ],
)
def test_a_device_that_was_not_asked_for_is_named_beside_what_was(pin: Pin, index: int, detail: str) -> None:
    failure = other_than_asked(pin, Identity("GPU-x", index))
    assert (failure.cause, failure.detail) == (Cause.OTHER_DEVICE, detail)


MANY = {f"{'k' * 50}-{number}": "v" * 63 for number in range(9_000)}
ANNOTATIONS = {f"a{number}": "x" * 1000 for number in range(250)}


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"labels": MANY}, id="labels"),
        pytest.param({"annotations": ANNOTATIONS}, id="annotations"),
        pytest.param({"annotations": {names.SHARED_GPU_CONFIGMAP: "x" * 250_000}}, id="prefix of ConfigMaps"),
        pytest.param({"annotations": {names.GPU_FRACTION: "0" * 250_000}}, id="share"),
        pytest.param({"annotations": {names.GPU_MEMORY: "1" * 250_000}}, id="memory"),
    ],
)
def test_whatever_a_tenant_writes_no_more_is_kept_than_a_few_kibibytes(meta: dict[str, Any]) -> None:
    made = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", **meta},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main"}]},
    }
    assert sizeof(view(msgspec.json.decode(msgspec.json.encode(made), type=Pod))) < 8 << 10

"""What other versions of us have written: an older one with fewer fields, a newer one with more.

An older text is read as what it meant then. Of a newer one nothing is dropped that a placement rests on: it is refused
where it would be acted on or written back (book, hand-over, record), and read where it only says where a pod is (grant,
plan). docs/install.md, Upgrading.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu import bind_request, book, grant, record
from gpu.bind_request import MalformedHandover
from gpu.book import Entry, MalformedBook
from gpu.request import FractionAsk
from gpu.translation import Refusal, Translation
from scheduler.core.convert import pod_groups
from tests.values import of_kind, there
from wire import names

ENTRY = {"nano": 5, "attempt": "a", "rv": "7", "since": 1, "pod": "team/p"}
GRANTED = {"group": "g", "reservation": "r", "uuid": "GPU-1", "nano": 5}
DEVICE = {"group": "g", "nano": 5}
RECORD = {"version": 1, "dialect": "hami", "asks": [{"container": "c0", "name": "main", "nano": 500_000_000}]}
LATER = {"ofALaterVersion": {"a": [1]}}


def text(said: Any) -> str:
    return json.dumps(said, separators=(",", ":"))


# --- books -------------------------------------------------------------------------------------------------------


def test_a_book_of_before_there_were_grace_periods_modes_and_compute_is_read() -> None:
    (entry,) = book.parse(text({"u": ENTRY})).entries.values()
    assert (entry.grace_s, entry.mode, entry.compute_percent, entry.cap_mib, entry.cap_nano) == (30, "", 0, 0, 0)


def test_a_book_without_anything_new_is_written_as_older_versions_read_it() -> None:
    """After a rollback nobody is shut out from a device for the sake of fields that say nothing."""
    assert json.loads(book.render(book.parse(text({"u": ENTRY})))) == {"u": ENTRY}
    assert set(ENTRY) == {name for name in Entry.__struct_fields__ if name not in _with_defaults()}


def _with_defaults() -> tuple[str, ...]:
    return Entry.__struct_fields__[-len(Entry.__struct_defaults__) :]


def test_a_book_that_says_more_is_nobodys_to_write_back() -> None:
    with pytest.raises(MalformedBook):
        book.parse(text({"u": ENTRY, "v": {**ENTRY, **LATER}}))


# --- grants ------------------------------------------------------------------------------------------------------


def test_a_grant_of_before_there_were_slices_is_of_a_card() -> None:
    read = there(grant.read({names.GRANT: text({"attempt": "a", "devices": [GRANTED]})}))
    assert [device.resource for device in read.devices] == ["nvidia.com/gpu"]


def test_a_grant_that_says_more_still_says_where_its_pod_is() -> None:
    """It is written once, with the Binding; who does not read it would give the pod's share away."""
    read = there(grant.read({names.GRANT: text({"attempt": "a", "devices": [{**GRANTED, **LATER}], **LATER})}))
    assert [(device.group, device.nano) for device in read.devices] == [("g", 5)]


# --- orders ------------------------------------------------------------------------------------------------------


def test_a_hand_over_of_the_first_version_is_carried_out() -> None:
    handed = bind_request.parse(text({"rv": "7", "devices": [DEVICE]}))
    assert (handed.members, handed.alternative) == (1, 0)
    assert [(device.mode, device.resource, device.mem_mib) for device in handed.devices] == [("", "nvidia.com/gpu", 0)]


@pytest.mark.parametrize("said", [{"rv": "7", **LATER}, {"rv": "7", "devices": [DEVICE, {**DEVICE, **LATER}]}])
def test_a_hand_over_that_says_more_is_left_to_who_understands_it(said: dict[str, Any]) -> None:
    with pytest.raises(
        MalformedHandover, match="ofALaterVersion is not known here: a newer version has to carry it out"
    ):
        bind_request.parse(text(said))


def test_every_field_that_we_write_into_a_hand_over_is_one_that_we_know() -> None:
    device = bind_request.PlannedDevice("g", 5, 100, "mps", "nvidia.com/mig-1g.10gb", 50)
    handed = bind_request.Handover("7", (device,), "plan", 2, 1)
    assert bind_request.parse(bind_request.render(handed)) == handed


@pytest.mark.parametrize("more", [{}, LATER])
def test_a_gangs_plan_of_another_version_still_holds_its_places(more: dict[str, Any]) -> None:
    """One that was not read would be no plan, and another one begun beside it."""
    plan = {"id": "x", "members": {"u": {"node": "n", "devices": [{**DEVICE, **more}], **more}}, **more}
    (member,) = pod_groups.members(text(plan)).values()
    assert (member.node, [device.group for device in member.devices]) == ("n", ["g"])


# --- records -----------------------------------------------------------------------------------------------------


def test_a_record_of_the_first_version_is_read() -> None:
    read = of_kind(Translation, record.read(text(RECORD)))
    assert read.places == ()
    assert [type(ask) for asked in read.request.containers for ask in asked.asks] == [FractionAsk]


@pytest.mark.parametrize("version", [0, 3])
def test_a_record_of_a_version_that_is_not_known_is_refused_with_what_is(version: int) -> None:
    read = of_kind(Refusal, record.read(text({**RECORD, "version": version})))
    assert "version 1 or 2" in read.allowed

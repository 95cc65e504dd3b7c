"""Which XIDs make a device ill: the catalogue's lines, and what differs from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.health import (
    CATALOGUE,
    EXCEPTIONS,
    Cure,
    Health,
    Look,
    RecoveryAction,
    Rules,
    State,
    counts,
    cure_of,
    meaning_of,
    on_cleared,
    on_fault,
    on_look,
    on_xid,
)
from nodeagent.core.plugin.offer import Remembered, decoded, encoded, with_seats, with_unlisted
from tests.nodeagent.core.machine import card, part, uuid

RULES = Rules()
S = 1_000_000_000
WELL = Look(driver="1", processes=3)


def after(*steps: Any, rules: Rules = RULES, health: Health | None = None) -> Health:
    """Take steps ten seconds apart: an XID, a Look, "clear", or a number of seconds to wait."""
    health, now_ns = health or Health(), 0
    for step in steps:
        if isinstance(step, float):
            now_ns += int(step * S)
            continue
        if isinstance(step, int):
            health = on_xid(health, step, now_ns, rules=rules, driver="1")
        elif isinstance(step, Look):
            health = on_look(health, step, now_ns, rules=rules)
        else:
            health = on_cleared(health, now_ns)
        now_ns += 10 * S
    return health


LOST = replace(WELL, answers=False)
UNLISTED = replace(WELL, is_listed=False, answers=False)
IDLE = replace(WELL, processes=0)
RELOADED = replace(WELL, driver="2")
PENDING = replace(IDLE, remap_pending=True)
ASKS_RESET = replace(WELL, recovery=RecoveryAction.GPU_RESET)
ASKS_NOTHING = replace(WELL, recovery=RecoveryAction.NONE)
UNKNOWN_USE = replace(WELL, processes=None)
FAILED = replace(WELL, remap_failed=True)


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([], State.WELL),
        ([WELL, WELL], State.WELL),
        *(([xid], State.WELL) for xid in (13, 31, 32, 45, 109, 154)),
        ([48], State.ILL),
        ([64], State.ILL),
        ([79], State.ILL),
        ([999], State.ILL),
        ([LOST], State.WELL),
        ([LOST, WELL, LOST], State.WELL),
        ([LOST, LOST], State.ILL),
        ([UNLISTED], State.ILL),
        ([ASKS_RESET], State.ILL),
        ([replace(WELL, recovery=RecoveryAction.NODE_REBOOT)], State.ILL),
        ([replace(WELL, recovery=RecoveryAction.DRAIN_AND_RESET)], State.ILL),
        ([replace(WELL, recovery=RecoveryAction.DRAIN_P2P)], State.WELL),
        ([replace(WELL, recovery=RecoveryAction.of(5))], State.WELL),
        ([replace(WELL, recovery=RecoveryAction.of(6))], State.ILL),
        ([replace(WELL, recovery=RecoveryAction.of(99))], State.ILL),
        ([FAILED], State.OUT),
        ([PENDING], State.WELL),
    ],
)
def test_what_makes_a_device_ill(steps: list[Any], state: State) -> None:
    assert after(*steps).state is state


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        # A fault that was contained is over when no process has the device.
        ([94, WELL], State.ILL),
        ([94, UNKNOWN_USE], State.ILL),
        ([94, IDLE], State.HEALING),
        ([63, PENDING], State.ILL),
        ([63, IDLE], State.HEALING),
        ([92, RELOADED], State.HEALING),
        ([64, IDLE], State.ILL),
        # A reset that the driver reports as done is no new fault.
        ([79, LOST, WELL, 154], State.HEALING),
        # Others need a reset or a driver that was loaded again.
        ([48, IDLE], State.ILL),
        ([48, WELL, WELL, IDLE], State.ILL),
        ([48, RELOADED], State.HEALING),
        ([79, LOST, WELL], State.HEALING),
        ([79, UNLISTED, WELL], State.HEALING),
        ([119, ASKS_RESET, ASKS_NOTHING], State.HEALING),
        ([119, ASKS_NOTHING], State.ILL),
        ([119, ASKS_RESET, replace(ASKS_RESET, driver="2")], State.ILL),
        ([95, replace(RELOADED, remap_pending=True)], State.ILL),
        # One that did not answer answers again.
        ([LOST, LOST, LOST], State.ILL),
        ([LOST, LOST, WELL], State.HEALING),
        ([UNLISTED, UNLISTED, WELL], State.HEALING),
        # The stronger cure of two faults.
        ([94, 48, IDLE], State.ILL),
        ([48, 94, IDLE], State.ILL),
        ([48, LOST, 48, WELL], State.ILL),
        # A time without a sign.
        ([94, IDLE, WELL, WELL, WELL, WELL, WELL], State.HEALING),
        ([94, IDLE, WELL, WELL, WELL, WELL, WELL, WELL], State.WELL),
        ([94, IDLE, 94], State.ILL),
        ([94, IDLE, 31, 59.0, WELL], State.WELL),
        ([94, IDLE, LOST], State.ILL),
        ([94, IDLE, ASKS_RESET], State.ILL),
        ([94, IDLE, FAILED], State.OUT),
        ([48, FAILED], State.OUT),
    ],
)
def test_how_a_device_becomes_well_again(steps: list[Any], state: State) -> None:
    assert after(*steps).state is state


ONE_ILLNESS = [94, IDLE, 60.0, WELL]


def test_a_device_that_is_ill_three_times_in_a_day_is_taken_out() -> None:
    assert after(*ONE_ILLNESS).state is State.WELL
    assert after(*ONE_ILLNESS, *ONE_ILLNESS).state is State.WELL
    taken_out = after(*ONE_ILLNESS, *ONE_ILLNESS, 94)
    assert taken_out.state is State.OUT
    assert taken_out.reason == "Xid94: contained memory error; ill 3 times in a day"
    assert after(*ONE_ILLNESS, 86_400.0, *ONE_ILLNESS, 94).state is State.ILL


def test_only_an_administrator_brings_back_a_device_that_is_out() -> None:
    out = [FAILED, IDLE, RELOADED, 48, LOST, WELL, 90_000.0, WELL]
    assert after(*out).state is State.OUT
    assert after(*out, "clear").state is State.HEALING
    assert after(*out, "clear", WELL, 60.0, WELL).state is State.WELL
    assert after(48, "clear").state is State.ILL


@pytest.mark.parametrize(
    ("ignored", "counted", "counts"),
    [
        (frozenset(), frozenset(), {48: True, 31: False, 79: True}),
        (frozenset({48}), frozenset(), {48: False, 31: False, 79: True}),
        (None, frozenset(), {48: False, 31: False, 79: False}),
        (None, frozenset({79}), {48: False, 31: False, 79: True}),
        (frozenset({48}), frozenset({48, 31}), {48: True, 31: True, 79: True}),
        (frozenset({48}), None, {48: True, 31: True, 79: True}),
    ],
)
def test_which_xids_count_is_said_as_to_nvidias_plugin(
    ignored: frozenset[int] | None, counted: frozenset[int] | None, counts: dict[int, bool]
) -> None:
    rules = Rules(ignored, counted)
    assert {xid: not after(xid, rules=rules).is_well for xid in counts} == counts


def test_an_xid_of_programs_that_is_made_to_count_is_over_when_no_process_has_the_device() -> None:
    rules = Rules(counted=frozenset({31}))
    assert after(31, WELL, rules=rules).state is State.ILL
    assert after(31, IDLE, rules=rules).state is State.HEALING


def test_an_ill_device_keeps_its_first_reason() -> None:
    assert after(79, 48).reason == "Xid79: GPU has fallen off the bus"
    assert after(777).reason == "Xid777"
    assert on_fault(Health(), "DoubleBitEcc", 5).reason == "DoubleBitEcc"


_LOOKS = st.builds(
    Look,
    is_listed=st.booleans(),
    answers=st.booleans(),
    recovery=st.none() | st.sampled_from(RecoveryAction),
    remap_pending=st.none() | st.booleans(),
    remap_failed=st.none() | st.just(False),
    processes=st.none() | st.integers(0, 2),
    driver=st.sampled_from(["1", "2"]),
)


@given(st.lists(_LOOKS | st.integers(1, 130) | st.floats(0, 100), max_size=20))
def test_no_device_is_offered_within_a_minute_of_a_sign(steps: list[Any]) -> None:
    health, now_ns, sign_ns = Health(), 0, -(10**12)
    for step in steps:
        now_ns += int(step * S) if isinstance(step, float) else S
        if isinstance(step, int):
            health = on_xid(health, step, now_ns, rules=RULES)
            sign_ns = now_ns if RULES.counts(step) else sign_ns
        elif isinstance(step, Look):
            health = on_look(health, step, now_ns, rules=RULES)
            sign_ns = now_ns if step.asks or not step.is_listed else sign_ns
        assert not (health.is_well and now_ns - sign_ns < RULES.healing_ns)


#: What NVIDIA's plugin (v0.20) leaves to programs.
_NVIDIAS_PLUGIN = {13, 31, 43, 45, 68, 109}
_PROGRAMS = {"RESTART_APP", "IGNORE"}


def test_every_number_is_in_one_line_of_the_catalogue_and_lines_are_in_order() -> None:
    numbers = [number for line in CATALOGUE for number in range(line.first, line.last + 1)]
    assert numbers == sorted(set(numbers))
    assert set(EXCEPTIONS) <= set(numbers)


def test_a_device_is_ill_unless_the_catalogue_blames_a_program_or_nobody() -> None:
    by_the_rule = {
        number: line.action not in _PROGRAMS for line in CATALOGUE for number in range(line.first, line.last + 1)
    }
    differs = {number for number, is_ill in by_the_rule.items() if counts(number) != is_ill}
    assert differs == set(EXCEPTIONS)


@pytest.mark.parametrize("number", sorted(_NVIDIAS_PLUGIN))
def test_what_nvidias_plugin_leaves_to_programs_does_not_count_here_either(number: int) -> None:
    assert not counts(number)


@pytest.mark.parametrize(
    ("number", "is_ill", "cure"),
    [
        # Of programs.
        (32, False, Cure.IDLE),
        (69, False, Cure.IDLE),
        (135, False, Cure.IDLE),
        # Worn memory, contained.
        (63, True, Cure.IDLE),
        (92, True, Cure.IDLE),
        (94, True, Cure.IDLE),
        # Of the device.
        (48, True, Cure.RESET),
        (64, True, Cure.RESET),
        (74, True, Cure.RESET),
        (79, True, Cure.RESET),
        (95, True, Cure.RESET),
        (119, True, Cure.RESET),
        (147, True, Cure.RESET),
        (171, True, Cure.RESET),
        # Not by the catalogue's action.
        (45, False, Cure.RESET),
        (109, False, Cure.RESET),
        (154, False, Cure.RESET),
        # Unused, and not known yet.
        (56, True, Cure.RESET),
        (173, True, Cure.RESET),
        (999, True, Cure.RESET),
        (0, True, Cure.RESET),
    ],
)
def test_what_an_xid_does_to_a_device_and_what_cures_it(number: int, is_ill: bool, cure: Cure) -> None:
    assert (counts(number), cure_of(number)) == (is_ill, cure)


def test_an_xid_has_a_meaning_unless_it_is_unknown() -> None:
    assert meaning_of(79) == "GPU has fallen off the bus"
    assert meaning_of(128) == "copy engine error"
    assert meaning_of(999) == ""


def test_what_is_written_is_read_again() -> None:
    ill = Health(state=State.ILL, reason="Xid79", since_ns=7, cure=Cure.RESET, driver="1", ill_at_ns=(3, 7))
    remembered = Remembered(
        (card(0), card(1, has_mig=True)), (part(1, 0, "1g.10gb"),), {uuid(0): ill}, {uuid(0): 0, uuid(1): 1}
    )
    assert decoded(encoded(remembered)) == remembered


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cards": 3}', b"\xff", b"[" * 100_000])
def test_what_can_not_be_read_is_as_nothing(content: bytes) -> None:
    assert decoded(content) == Remembered()


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_as_nothing(content: bytes) -> None:
    assert isinstance(decoded(content), Remembered)


def test_a_card_that_is_not_listed_any_more_stays() -> None:
    assert [one.uuid for one in with_unlisted([card(0), card(1)], [card(1)])] == [uuid(0), uuid(1)]
    assert [one.uuid for one in with_unlisted([], [card(1), card(0)])] == [uuid(0), uuid(1)]
    assert with_unlisted([card(0, mem_mib=1)], [card(0)]) == (card(0),)


def test_a_card_keeps_the_index_that_it_had_first() -> None:
    seats = with_seats({}, [card(0), card(1), card(2)])
    assert seats == {uuid(0): 0, uuid(1): 1, uuid(2): 2}
    # The first has gone, and the driver numbers the others again.
    renumbered = [card(0), replace(card(1), index=0), replace(card(2), index=1)]
    assert with_seats(seats, renumbered) == seats
    # It is taken out, and another one is put into its place.
    exchanged = [replace(card(7), index=0), replace(card(1), index=1), replace(card(2), index=2)]
    assert with_seats(seats, exchanged) == {uuid(1): 1, uuid(2): 2, uuid(7): 0}
    assert with_seats(seats, [*renumbered, replace(card(7), index=2)])[uuid(7)] == 3

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu import book as device_book
from gpu import bound_pod
from gpu.book import EMPTY, Book, ComputeTaken, DeviceFull, Entry, MalformedBook, ModeConflict, OtherAttempt, Tenant
from gpu.share import MOST_TENANTS, NANO_PER_DEVICE, nano_from_memory
from tests.fuzzing import fuzzed

HALF = NANO_PER_DEVICE // 2


def tenant(uid: str, nano: int = HALF, *, attempt: str = "a1", rv: str = "7", since: int = 100) -> Tenant:
    return Tenant(uid, Entry(nano=nano, attempt=attempt, rv=rv, since=since, pod=f"team/{uid}"))


def joined(*tenants: Tenant) -> Book:
    book = device_book.join(EMPTY, tenants)
    assert isinstance(book, Book)
    return book


def test_two_halves_fill_a_device() -> None:
    book = joined(tenant("u1"), tenant("u2"))
    assert (book.total_nano, book.free_nano) == (NANO_PER_DEVICE, 0)


def test_a_full_device_refuses_a_further_share() -> None:
    book = joined(tenant("u1"), tenant("u2", HALF - 1))
    assert device_book.join(book, [tenant("u3", 2)]) == DeviceFull(asked_nano=2, free_nano=1)


def test_a_thousand_thousandths_fit_and_not_one_more() -> None:
    book = joined(*(tenant(f"u{index}", 1_000_000) for index in range(1000)))
    assert book.free_nano == 0
    assert device_book.join(book, [tenant("late", 1)]) == DeviceFull(asked_nano=1, free_nano=0)


def memory(uid: str, mem_mib: int, card_mib: int) -> Tenant:
    """A tenant that asks memory of a card."""
    nano = nano_from_memory(mem_mib, card_mib)
    assert nano is not None
    return tenant(uid, nano)


def test_memory_that_adds_up_to_the_card_fits_a_book_and_not_a_mib_more() -> None:
    book = joined(*(memory(uid, 8192, 24576) for uid in ("u1", "u2", "u3")))
    assert isinstance(device_book.join(book, [memory("u4", 1, 24576)]), DeviceFull)


def test_a_book_of_an_older_version_is_read_as_it_stands_and_takes_what_is_left() -> None:
    """It charged memory rounded up, which is a nano more here: nobody lowers it, and nobody is let in for it."""
    book = joined(tenant("u1", 333_333_334), tenant("u2", 333_333_334))
    assert device_book.parse(device_book.render(book)) == book
    assert device_book.join(book, [memory("u1", 8192, 24576)]) == book
    assert isinstance(device_book.join(book, [memory("u3", 8192, 24576)]), DeviceFull)
    assert isinstance(device_book.join(book, [memory("u3", 8191, 24576)]), Book)


def test_a_book_takes_so_many_tenants_as_are_proven_not_to_pass_the_card() -> None:
    full = [tenant(f"u{number}", 1) for number in range(MOST_TENANTS)]
    book = joined(*full)
    assert device_book.join(book, [tenant("late", 1)]) == DeviceFull(1, NANO_PER_DEVICE - MOST_TENANTS)
    assert device_book.join(book, full) == book


def test_so_many_tenants_would_not_fit_the_annotations_of_a_pod() -> None:
    """So nobody meets that number: each takes a UID, an attempt's UUID and a time at least."""
    ids = [str(uuid.UUID(int=number)) for number in range(MOST_TENANTS)]
    shortest = [Tenant(each, Entry(1, attempt=each, rv="1", since=1_767_225_600, pod="a/b")) for each in ids]
    assert len(device_book.render(joined(*shortest))) > bound_pod.LARGEST


def test_tenants_join_all_or_none() -> None:
    book = joined(tenant("u1"))
    assert device_book.join(book, [tenant("u2", 1), tenant("u3", HALF)]) == DeviceFull(HALF + 1, HALF)
    assert book == joined(tenant("u1"))


def test_joining_again_under_the_same_attempt_keeps_the_entry_that_is_there() -> None:
    book = joined(tenant("u1", rv="7", since=100))
    again = device_book.join(book, [tenant("u1", 1, rv="9", since=200)])
    assert again == book


def running(uid: str, mode: str, *, is_bound: bool = False) -> Tenant:
    """A tenant in a mode."""
    entry = Entry(nano=HALF // 2, attempt="a1", rv="7", since=100, pod=f"team/{uid}", mode=mode)
    return Tenant(uid, entry, is_bound)


@pytest.mark.parametrize(
    ("there", "coming", "expected"),
    [
        pytest.param((), ("mps",), None, id="the first says the mode"),
        pytest.param(("mps",), ("mps",), None, id="the same"),
        pytest.param(("",), ("mps",), None, id="beside one that runs in any"),
        pytest.param(("mps",), ("",), None, id="one that runs in any"),
        pytest.param(("mps",), ("time-slicing",), ModeConflict("time-slicing", "mps"), id="another"),
        pytest.param(("", "mps"), ("", "hami-core"), ModeConflict("hami-core", "mps"), id="one of several"),
        pytest.param((), ("mps", "sm-sharing"), ModeConflict("sm-sharing", "mps"), id="two that come together"),
    ],
)
def test_two_modes_never_meet_in_a_book(
    there: tuple[str, ...], coming: tuple[str, ...], expected: ModeConflict | None
) -> None:
    book = joined(*(running(f"u{number}", mode) for number, mode in enumerate(there)))
    answer = device_book.join(book, [running(f"v{number}", mode) for number, mode in enumerate(coming)])
    assert answer == expected if expected else isinstance(answer, Book)
    if isinstance(answer, Book):
        assert answer.modes == {*there, *coming} - {""}
        assert device_book.parse(device_book.render(answer)) == answer


def test_a_mode_is_open_again_when_its_last_tenant_has_left() -> None:
    book = joined(running("u1", "mps"), running("u2", ""))
    left = device_book.leave(book, [running("u1", "mps")])
    assert isinstance(device_book.join(left, [running("u3", "hami-core")]), Book)


def test_who_is_bound_is_entered_whatever_its_mode_since_its_share_is_taken() -> None:
    book = device_book.join(joined(running("u1", "mps")), [running("u2", "hami-core", is_bound=True)])
    assert isinstance(book, Book)
    assert book.modes == {"mps", "hami-core"}
    assert device_book.join(book, [running("u3", "mps")]) == ModeConflict("mps", "hami-core")


def test_joining_again_is_idempotent_though_others_run_in_another_mode() -> None:
    book = device_book.join(joined(running("u1", "mps")), [running("u2", "hami-core", is_bound=True)])
    assert isinstance(book, Book)
    assert device_book.join(book, [running("u1", "mps")]) == book


def asking(uid: str, percent: int, *, is_bound: bool = False) -> Tenant:
    """A tenant that asks for so much of the compute."""
    entry = Entry(nano=1, attempt="a1", rv="7", since=100, pod=f"team/{uid}", compute_percent=percent)
    return Tenant(uid, entry, is_bound)


@pytest.mark.parametrize(
    ("there", "coming", "expected"),
    [
        pytest.param((), (100,), None, id="all of it"),
        pytest.param((60,), (40,), None, id="just what is left"),
        pytest.param((60,), (41,), ComputeTaken(41, 40), id="one percent more"),
        pytest.param((60, 40), (0,), None, id="none is asked"),
        pytest.param((60, 40), (1,), ComputeTaken(1, 0), id="nothing is left"),
        pytest.param((30,), (30, 30, 30), ComputeTaken(30, 10), id="several that come together"),
    ],
)
def test_what_is_asked_of_the_compute_of_a_device_is_all_of_it_at_most(
    there: tuple[int, ...], coming: tuple[int, ...], expected: ComputeTaken | None
) -> None:
    book = joined(*(asking(f"u{number}", percent) for number, percent in enumerate(there)))
    answer = device_book.join(book, [asking(f"v{number}", percent) for number, percent in enumerate(coming)])
    assert answer == expected if expected else isinstance(answer, Book)
    if isinstance(answer, Book):
        assert answer.free_compute_percent == 100 - sum(there) - sum(coming)
        assert device_book.parse(device_book.render(answer)) == answer


def test_compute_is_free_again_when_who_asked_it_has_left() -> None:
    book = joined(asking("u1", 60), asking("u2", 40))
    left = device_book.leave(book, [asking("u1", 60)])
    assert isinstance(device_book.join(left, [asking("u3", 60)]), Book)


def test_who_is_bound_is_entered_whatever_compute_is_left_and_nobody_else_then() -> None:
    book = device_book.join(joined(asking("u1", 80)), [asking("u2", 80, is_bound=True)])
    assert isinstance(book, Book)
    assert device_book.parse(device_book.render(book)) == book
    assert device_book.join(book, [asking("u1", 80)]) == book
    assert device_book.join(book, [asking("u3", 1)]) == ComputeTaken(1, 0)
    assert isinstance(device_book.join(book, [asking("u3", 0)]), Book)


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_book_with_compute_that_can_not_be_asked_is_malformed(percent: int) -> None:
    with pytest.raises(MalformedBook, match="0 to 100 percent"):
        device_book.parse(device_book.render(joined(asking("u1", percent, is_bound=True))))


def test_an_entry_of_another_attempt_is_neither_overwritten_nor_adopted() -> None:
    book = joined(tenant("u1", attempt="a1"))
    assert device_book.join(book, [tenant("u0", 1), tenant("u1", attempt="a2")]) == OtherAttempt("u1", "a1")


@pytest.mark.parametrize(
    ("leaver", "stays"),
    [
        (tenant("u1"), False),
        (tenant("u1", nano=1, since=0), False),
        (tenant("u1", attempt="a2"), True),
        (tenant("u1", rv="8"), True),
        (tenant("u3"), True),
    ],
)
def test_only_exactly_the_entry_that_is_named_leaves(leaver: Tenant, stays: bool) -> None:
    book = device_book.leave(joined(tenant("u1"), tenant("u2")), [leaver])
    assert ("u1" in book.entries) is stays
    assert "u2" in book.entries


@pytest.mark.parametrize(
    ("to", "nano"), [(HALF - 1, HALF - 1), (1, 1), (HALF, HALF), (HALF + 1, HALF), (0, HALF), (-1, HALF), (None, HALF)]
)
def test_a_charge_is_lowered_and_never_raised_or_taken_away(to: int | None, nano: int) -> None:
    book = joined(tenant("u1"), tenant("u2"))
    lowered = device_book.lower(book, {} if to is None else {"u1": to})
    assert {uid: entry.nano for uid, entry in lowered.entries.items()} == {"u1": nano, "u2": HALF}


def test_renewing_moves_only_the_resource_version() -> None:
    renewed = device_book.renew(joined(tenant("u1"), tenant("u2")), tenant("u1"), "12")
    assert renewed == joined(tenant("u1", rv="12"), tenant("u2"))


@pytest.mark.parametrize("known", [tenant("u1", rv="8"), tenant("u1", attempt="a2"), tenant("u3")])
def test_an_entry_that_changed_meanwhile_is_not_renewed(known: Tenant) -> None:
    assert device_book.renew(joined(tenant("u1"), tenant("u2")), known, "12") is None


def entry(**change: object) -> dict[str, object]:
    return {"nano": HALF, "attempt": "a1", "rv": "7", "since": 100, "pod": "team/u1", **change}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '"u1"',
        json.dumps({"u1": None}),
        json.dumps({"u1": {}}),
        json.dumps({"u1": entry(nano="500000000")}),
        json.dumps({"u1": entry(nano=0.5)}),
        json.dumps({"u1": entry(nano=0)}),
        json.dumps({"u1": entry(nano=-1), "u2": entry(nano=5)}),
        json.dumps({"u1": entry(nano=NANO_PER_DEVICE + 1)}),
        json.dumps({"u1": entry(), "u2": entry(nano=HALF + 1)}),
        json.dumps({"u1": entry(nano=10**30)}),
        json.dumps({"u1": entry(attempt=None)}),
        json.dumps({"u1": entry(extra=1)}),
        json.dumps({"u1": {key: value for key, value in entry().items() if key != "rv"}}),
        json.dumps({"u1": entry()}) + "x",
        "\ud800",
    ],
    ids=ascii,
)
def test_what_is_not_a_book_is_refused(text: str) -> None:
    with pytest.raises(MalformedBook):
        device_book.parse(text)


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_no_annotation_is_an_empty_book(text: str | None) -> None:
    assert device_book.parse(text) == EMPTY


@fuzzed
@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")))
def test_any_annotation_gives_a_book_or_the_one_error(text: str) -> None:
    try:
        book = device_book.parse(text)
    except MalformedBook:
        return
    assert book.total_nano <= NANO_PER_DEVICE


def test_equal_books_are_equal_texts() -> None:
    one, other = joined(tenant("u1"), tenant("u2")), joined(tenant("u2"), tenant("u1"))
    assert device_book.render(one) == device_book.render(other)


UIDS = st.sampled_from(["u1", "u2", "u3", "u4", "u5"])
ATTEMPTS = st.sampled_from(["a1", "a2"])
VERSIONS = st.sampled_from(["1", "2", "3"])
CHARGES = st.sampled_from([1, HALF - 1, HALF, HALF + 1, NANO_PER_DEVICE]) | st.integers(1, NANO_PER_DEVICE)
TENANTS = st.builds(tenant, UIDS, CHARGES, attempt=ATTEMPTS, rv=VERSIONS)


class BookMachine(RuleBasedStateMachine):
    """Every sequence of joins, leaves and renewals, checked against a plain table of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.book = EMPTY
        self.held: dict[str, Entry] = {}

    @rule(tenants=st.lists(TENANTS, min_size=1, max_size=3, unique_by=lambda each: each.pod_uid))
    def join(self, tenants: list[Tenant]) -> None:
        strangers = [t for t in tenants if t.pod_uid in self.held and self.held[t.pod_uid].attempt != t.entry.attempt]
        fresh = [t for t in tenants if t.pod_uid not in self.held]
        asked = sum(t.entry.nano for t in fresh)
        free = NANO_PER_DEVICE - sum(e.nano for e in self.held.values())

        answer = device_book.join(self.book, tenants)

        if strangers:
            assert answer == OtherAttempt(strangers[0].pod_uid, self.held[strangers[0].pod_uid].attempt)
        elif asked > free:
            assert answer == DeviceFull(asked_nano=asked, free_nano=free)
        else:
            assert isinstance(answer, Book)
            self.book = answer
            self.held |= {t.pod_uid: t.entry for t in fresh}
            assert device_book.join(self.book, tenants) == self.book

    @rule(tenants=st.lists(TENANTS, max_size=3))
    def leave(self, tenants: list[Tenant]) -> None:
        named = {(t.pod_uid, t.entry.attempt, t.entry.rv) for t in tenants}
        self.book = device_book.leave(self.book, tenants)
        self.held = {uid: e for uid, e in self.held.items() if (uid, e.attempt, e.rv) not in named}

    @rule(data=st.data())
    def one_who_is_there_leaves(self, data: st.DataObject) -> None:
        assume(self.held)
        uid = data.draw(st.sampled_from(sorted(self.held)))
        self.book = device_book.leave(self.book, [Tenant(uid, self.held.pop(uid))])

    @rule(known=TENANTS, rv=VERSIONS)
    def renew(self, known: Tenant, rv: str) -> None:
        held = self.held.get(known.pod_uid)
        renewed = device_book.renew(self.book, known, rv)
        if held is None or (held.attempt, held.rv) != (known.entry.attempt, known.entry.rv):
            assert renewed is None
            return
        assert renewed is not None
        self.book = renewed
        self.held[known.pod_uid] = Entry(nano=held.nano, attempt=held.attempt, rv=rv, since=held.since, pod=held.pod)

    @invariant()
    def the_book_is_the_table(self) -> None:
        assert dict(self.book.entries) == self.held

    @invariant()
    def a_device_is_never_charged_beyond_itself(self) -> None:
        assert 0 <= self.book.total_nano <= NANO_PER_DEVICE
        assert self.book.free_nano == NANO_PER_DEVICE - self.book.total_nano

    @invariant()
    def what_is_written_reads_back(self) -> None:
        assert device_book.parse(device_book.render(self.book)) == self.book


TestBook = BookMachine.TestCase


@pytest.mark.parametrize("field", ["cap_mib", "cap_nano"])
@pytest.mark.parametrize(("cap", "is_read"), [(0, True), (1, True), (NANO_PER_DEVICE, True), (-1, False)])
def test_a_memory_cap_is_not_below_none(field: str, cap: int, *, is_read: bool) -> None:
    entry = {"nano": 5, "attempt": "a", "rv": "7", "since": 1, "pod": "team/p", field: cap}
    if is_read:
        assert getattr(device_book.parse(json.dumps({"u": entry})).entries["u"], field) == cap
    else:
        with pytest.raises(MalformedBook, match="memory cap"):
            device_book.parse(json.dumps({"u": entry}))


def test_no_cap_is_above_the_device() -> None:
    entry = {"nano": 5, "attempt": "a", "rv": "7", "since": 1, "pod": "team/p", "cap_nano": NANO_PER_DEVICE + 1}
    with pytest.raises(MalformedBook, match="memory cap"):
        device_book.parse(json.dumps({"u": entry}))

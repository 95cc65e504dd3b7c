"""Claims that failed, as text beside the record of nominations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import FailedClaim
from scheduler.core.preemption.nomination_record import MOST_CLAIMS, joined_claims, read_claims, written_claims

UID = "0b9c2f6e-5f0d-4d0e-8c1e-2f6f5a0c7f11"
FAILED = st.builds(FailedClaim, st.integers(1, 2**31 - 1), st.integers(0, 2**53 - 1))


@given(st.dictionaries(st.uuids().map(str) | st.text(min_size=1), FAILED, max_size=5))
def test_what_is_written_is_read(claims: dict[str, FailedClaim]) -> None:
    assert read_claims(written_claims(claims)) == (claims, ())


def test_a_claim_takes_less_than_50_bytes() -> None:
    assert len(written_claims({UID: FailedClaim(12, 1_795_000_000)})) < 50


def test_of_too_many_those_that_failed_last_are_written() -> None:
    claims = {f"c{number}": FailedClaim(1, number) for number in range(MOST_CLAIMS + 1)}
    assert [*read_claims(written_claims(claims))[0]] == [f"c{number}" for number in range(1, MOST_CLAIMS + 1)]


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("", 0),
        ("{}", 0),
        ("[]", 1),
        ("no", 1),
        ('{"=c":[1,2],"=d":[0,2],"=e":[1,-1],"=f":[1],"=g":[true,1],"=h":"x","":[1,2],"i":[1,2]}', 7),
    ],
)
def test_what_can_not_be_read_is_named_and_counts_for_nothing(text: str, unread: int) -> None:
    claims, told = read_claims(text)
    assert len(told) == unread
    assert claims == ({"c": FailedClaim(1, 2)} if "=c" in text else {})


@given(st.text() | st.binary().map(lambda each: each.decode("latin-1")))
def test_no_text_raises(text: str) -> None:
    read_claims(text)


def test_of_what_several_know_the_last_failure_counts() -> None:
    mine = {"a": FailedClaim(2, 50), "b": FailedClaim(1, 10)}
    theirs = {"c": FailedClaim(1, 20), "b": FailedClaim(2, 40), "a": FailedClaim(3, 45)}
    known = joined_claims((mine, theirs))
    assert [*known.items()] == [("c", theirs["c"]), ("b", theirs["b"]), ("a", mine["a"])]

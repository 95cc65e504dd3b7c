from __future__ import annotations

import pytest

from cli.checks.reader import CantLook, Reader
from tests.cli.checks.told import Told


async def test_a_long_list_is_read_in_pages() -> None:
    pages = {"/p": {"items": [{"a": 1}], "metadata": {"continue": "t"}}, "/p?continue=t": {"items": [{"a": 2}]}}
    assert await Reader(Told(pages)).items("/p") == [{"a": 1}, {"a": 2}]


async def test_what_is_not_there_is_none() -> None:
    assert await Reader(Told({})).get("/p") is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "GET /p: cut"),
        ((403, {"message": 'User "a" cannot get p'}), 'GET /p: User "a" cannot get p'),
        ((500, {}), "GET /p: 500"),
        ((502, b"<html>"), "GET /p: <html>"),
    ],
    ids=["cut", "forbidden", "broken", "no-json"],
)
async def test_what_can_not_be_read_is_told(answer: object, said: str) -> None:
    with pytest.raises(CantLook) as raised:
        await Reader(Told({"/p": answer})).get("/p")
    assert str(raised.value) == said


async def test_a_trial_is_never_kept() -> None:
    told = Told({"/p": (201, {})})
    await Reader(told).tried("/p", {})
    assert told.asked == [("POST", "/p", {"dryRun": "All"})]


@pytest.mark.parametrize(("message", "is_right"), [('User "a" cannot create p', True), ("denied by a policy", False)])
async def test_a_trial_says_whether_it_was_the_right_that_was_missing(message: str, is_right: bool) -> None:
    answer = await Reader(Told({"/p": (403, {"message": message})})).tried("/p", {})
    assert answer.message == message
    assert answer.was_not_allowed is is_right

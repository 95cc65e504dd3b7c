"""How answers of the page are sent."""

from __future__ import annotations

import pytest

from ui.page.auth import Turned
from ui.page.server import accepts_gzip, turned


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, br", False),
        ("*, gzip;q=0", False),
        ("*;q=0", False),
        ("br", False),
        ("", False),
    ],
)
def test_gzip_is_used_only_for_those_who_accept_it(header: str, *, is_accepted: bool) -> None:
    assert accepts_gzip(header) is is_accepted


@pytest.mark.parametrize(("status", "asks"), [(401, "Bearer"), (403, None), (503, None)])
def test_only_who_has_not_signed_in_is_asked_for_a_token(status: int, asks: str | None) -> None:
    answer = turned(Turned(status, "why"))
    assert answer.status == status
    assert answer.headers.get("WWW-Authenticate") == asks
    assert answer.body == b'{"error":"why"}'

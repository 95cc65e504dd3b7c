"""Who sees what: asked of the API server, remembered for seconds, and never more than that."""

from __future__ import annotations

import anyio
import pytest

from cli.page.access import MOST_NAMESPACES, MOST_READERS, Open, Reviewed, Turned
from cli.page.sight import EVERYTHING, Sight
from kube.errors import Forbidden
from tests.cli.page.reviews import RIGHTS, USERS, Reviewer
from tests.conftest import AnyioBackend

THERE = frozenset({"team-a", "team-b", "team-c"})


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def reviewed(**settings: float) -> tuple[Reviewed, Reviewer]:
    server = Reviewer(USERS, RIGHTS)
    return Reviewed(server.api(), **settings), server


async def sight(access: Reviewed, token: str) -> Sight | Turned:
    return await access.sight(f"Bearer {token}", lambda: THERE)


async def status(access: Reviewed, authorization: str) -> int:
    said = await access.sight(authorization, lambda: THERE)
    return said.status if isinstance(said, Turned) else 200


@pytest.mark.parametrize(
    ("token", "seen"),
    [
        ("token-admin", EVERYTHING),
        ("token-ann", Sight(nodes=True, namespaces=frozenset({"team-a"}), events=frozenset({"team-a"}))),
        ("token-bob", Sight(nodes=False, namespaces=frozenset({"team-b"}), events=frozenset())),
    ],
)
async def test_people_see_what_they_may_list(token: str, seen: Sight) -> None:
    assert await sight(reviewed()[0], token) == seen


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("", 401),
        ("Bearer ", 401),
        ("Bearer nobody's", 401),
        ("Basic token-admin", 401),
        ("token-admin", 401),
        (f"Bearer {'x' * 20_000}", 401),
        ("Bearer \udcff", 401),
        ("bearer  token-admin ", 200),
        ("Bearer token-eve", 403),
    ],
)
async def test_who_is_nobody_or_may_see_nothing_is_turned_away(authorization: str, code: int) -> None:
    assert await status(reviewed()[0], authorization) == code


async def test_answers_hold_for_seconds_and_no_longer() -> None:
    access, server = reviewed(holds_s=20.0)
    assert isinstance(await sight(access, "token-ann"), Sight)
    asked = len(server.asked)
    for _ in range(5):
        await sight(access, "token-ann")
    assert len(server.asked) == asked
    server.users.pop("token-ann")
    await anyio.sleep(21)
    assert await status(access, "Bearer token-ann") == 401


async def test_a_right_that_is_taken_away_is_gone_within_seconds() -> None:
    access, server = reviewed(holds_s=20.0)
    await sight(access, "token-ann")
    server.rights["ann"] = frozenset()
    await anyio.sleep(21)
    assert await status(access, "Bearer token-ann") == 403


async def test_tokens_of_nobody_are_asked_about_once_and_do_not_pile_up() -> None:
    access, server = reviewed()
    for _ in range(3):
        await status(access, "Bearer wrong")
    assert len(server.asked) == 1
    for number in range(MOST_READERS + 50):
        await status(access, f"Bearer wrong-{number}")
    assert len(access._users._known) == MOST_READERS
    assert not any("wrong" in key for key in access._users._known)


async def test_of_very_many_namespaces_the_first_are_asked_about() -> None:
    access, server = reviewed()
    many = frozenset(f"ns-{number:04}" for number in range(MOST_NAMESPACES + 10)) | {"team-a"}
    said = await access.sight("Bearer token-ann", lambda: many)
    assert isinstance(said, Sight)
    assert said.namespaces == frozenset()
    assert len(server.asked) <= 1 + 3 + 2 * MOST_NAMESPACES


async def test_a_denial_goes_before_what_is_allowed() -> None:
    access, server = reviewed()
    server.is_denied = True
    assert await status(access, "Bearer token-admin") == 403


async def test_where_it_cannot_be_asked_nothing_is_seen() -> None:
    access, server = reviewed()
    server.is_broken = True
    with pytest.raises(Forbidden):
        await sight(access, "token-admin")


async def test_on_loopback_nobody_is_asked() -> None:
    assert await Open().sight("", lambda: THERE) == EVERYTHING

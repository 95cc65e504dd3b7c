"""Who sees what: asked of the API server, remembered for seconds, and never more than that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest
from typing_extensions import override

from kube.client.errors import Forbidden
from kube.client.transport import Response
from runtime.reviews import MOST_READERS
from tests.ui.page.reviews import RIGHTS, USERS, Reviewer
from ui.page.auth import MOST_NAMESPACES, Denied, Open, TokenReviewAccess
from ui.page.values import EVERYTHING, Sight

VIRTUAL_TIME = True

THERE = frozenset({"team-a", "team-b", "team-c"})


class Unhurried(Reviewer):
    """Takes a tenth of a second for a review, and counts those that are under way, by user ("": of tokens)."""

    def __init__(self) -> None:
        super().__init__(USERS, RIGHTS)
        self.at_once: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **how: Any) -> Response:
        user = msgspec.json.decode(body or b"")["spec"].get("user", "")
        self.at_once[user] += 1
        self.most_at_once[user] = max(self.most_at_once[user], self.at_once[user])
        try:
            await anyio.sleep(0.1)
            return await super().request(method, path, body=body, **how)
        finally:
            self.at_once[user] -= 1


MANY = frozenset(f"ns-{number}" for number in range(200))


def reviewed(**settings: float) -> tuple[TokenReviewAccess, Reviewer]:
    server = Reviewer(USERS, RIGHTS)
    return TokenReviewAccess(server.api(), **settings), server


async def sight(access: TokenReviewAccess, token: str) -> Sight | Denied:
    return await access.sight(f"Bearer {token}", lambda: THERE)


async def status(access: TokenReviewAccess, authorization: str) -> int:
    said = await access.sight(authorization, lambda: THERE)
    return said.status if isinstance(said, Denied) else 200


@pytest.mark.parametrize(
    ("token", "seen"),
    [
        ("token-admin", EVERYTHING),
        ("token-ann", Sight(nodes=True, namespaces=frozenset({"team-a"}), events=frozenset({"team-a"}), queues=False)),
        ("token-bob", Sight(nodes=False, namespaces=frozenset({"team-b"}), events=frozenset(), queues=False)),
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
    assert len(access._users) == MOST_READERS
    assert not any("wrong" in key for key in access._users._known._known)


async def test_of_very_many_namespaces_the_first_are_asked_about() -> None:
    access, server = reviewed()
    many = frozenset(f"ns-{number:04}" for number in range(MOST_NAMESPACES + 10)) | {"team-a"}
    said = await access.sight("Bearer token-ann", lambda: many)
    assert isinstance(said, Sight)
    assert said.namespaces == frozenset()
    assert len(server.asked) <= 1 + 4 + 2 * MOST_NAMESPACES


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


# --- many at one time ------------------------------------------------------------------------------------------------


async def test_a_hundred_pages_of_one_reader_ask_once_and_leave_room_for_others() -> None:
    server = Unhurried()
    access = TokenReviewAccess(server.api())
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(access.sight, "Bearer token-bob", lambda: MANY)
        await anyio.sleep(0.25)
        began = anyio.current_time()
        assert await access.sight("Bearer token-admin", lambda: MANY) == EVERYTHING
        assert anyio.current_time() - began < 1.0
    assert len(server.asked) == (1 + 4 + 2 * len(MANY)) + (1 + 4)
    assert server.most_at_once["bob"] == 2


async def test_one_user_with_many_tokens_leaves_room_for_others() -> None:
    server = Unhurried()
    server.users |= {f"bob-{number}": "bob" for number in range(20)}
    access = TokenReviewAccess(server.api())
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(access.sight, f"Bearer bob-{number}", lambda: MANY)
        await anyio.sleep(1.05)
        assert server.at_once["bob"] == 2
        assert server.most_at_once["bob"] == 2
        tasks.cancel_scope.cancel()


async def test_who_is_known_does_not_wait_behind_tokens_of_nobody_and_is_not_forgotten_for_them() -> None:
    server = Unhurried()
    access = TokenReviewAccess(server.api(), holds_s=20.0)
    assert await access.sight("Bearer token-admin", lambda: MANY) == EVERYTHING
    async with anyio.create_task_group() as tasks:
        for number in range(5000):
            tasks.start_soon(access.sight, f"Bearer wrong-{number}", lambda: MANY)
        await anyio.sleep(21.0)
        began = anyio.current_time()
        assert await access.sight("Bearer token-admin", lambda: MANY) == EVERYTHING
        assert anyio.current_time() - began < 1.0
        tasks.cancel_scope.cancel()
    assert server.most_at_once[""] == 9


async def test_where_the_page_that_asked_has_gone_the_next_one_asks() -> None:
    server = Unhurried()
    access = TokenReviewAccess(server.api())
    first = anyio.CancelScope()
    seen: list[Sight | Denied] = []

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            seen.append(await access.sight("Bearer token-bob", lambda: THERE))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, first)
        await anyio.sleep(0.15)
        for _ in range(3):
            tasks.start_soon(ask, anyio.CancelScope())
        await anyio.sleep(0.01)
        first.cancel()
    assert seen == [Sight(nodes=False, namespaces=frozenset({"team-b"}), events=frozenset(), queues=False)] * 3


async def test_those_who_wait_for_an_answer_are_told_of_its_failure_too() -> None:
    server = Unhurried()
    server.is_broken = True
    access = TokenReviewAccess(server.api())
    failed: list[Exception] = []

    async def ask() -> None:
        try:
            await access.sight("Bearer token-bob", lambda: THERE)
        except Forbidden as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert len(failed) == 3
    assert sum(server.most_at_once.values()) == 1

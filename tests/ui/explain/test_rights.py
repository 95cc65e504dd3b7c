"""Who may get an object may have it explained; the API server is asked once in a while."""

from __future__ import annotations

import anyio
import pytest

from kube.client.errors import ApiError
from tests.ui.page.reviews import USERS, Reviewer
from ui.explain.server import RIGHTS_HOLD_S, Rights
from ui.explain.views import Unanswered

VIRTUAL_TIME = True

RIGHTS = {
    "admin": frozenset({("get pods", "team-a"), ("get podgroups", "team-a"), ("pods", "")}),
    "ann": frozenset({("get pods", "team-a")}),
    "bob": frozenset({("pods", "team-a")}),
}


async def status(rights: Rights, authorization: str, kind: str = "pod", namespace: str = "team-a") -> int:
    try:
        await rights.check(await rights.user(authorization), kind, namespace, "p")
    except Unanswered as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    ("authorization", "kind", "namespace", "code"),
    [
        ("", "pod", "team-a", 401),
        ("Basic token-ann", "pod", "team-a", 401),
        ("Bearer token-nobody", "pod", "team-a", 401),
        ("Bearer token-ann", "pod", "team-a", 200),
        ("Bearer token-ann", "pod", "team-b", 403),
        ("Bearer token-ann", "podgroup", "team-a", 403),
        ("Bearer token-admin", "podgroup", "team-a", 200),
        ("Bearer token-bob", "pod", "team-a", 403),
    ],
)
async def test_who_may_get_an_object_may_ask(authorization: str, kind: str, namespace: str, code: int) -> None:
    assert await status(Rights(Reviewer(USERS, RIGHTS).api()), authorization, kind, namespace) == code


async def test_the_object_is_named_in_the_review() -> None:
    server = Reviewer(USERS, RIGHTS)
    await status(Rights(server.api()), "Bearer token-ann")
    attributes = server.asked[-1]["resourceAttributes"]
    assert attributes == {"verb": "get", "group": "", "resource": "pods", "namespace": "team-a", "name": "p"}


@pytest.mark.parametrize(("token", "sees"), [("token-admin", True), ("token-ann", False), ("token-bob", False)])
async def test_who_may_list_all_pods_is_told_names_of_others(token: str, sees: bool) -> None:
    rights = Rights(Reviewer(USERS, RIGHTS).api())
    assert await rights.sees_others(await rights.user(f"Bearer {token}")) is sees


async def test_answers_hold_for_seconds_and_a_right_that_is_taken_away_ends_then() -> None:
    server = Reviewer(USERS, RIGHTS)
    rights = Rights(server.api())
    assert [await status(rights, "Bearer token-ann") for _ in range(3)] == [200] * 3
    assert len(server.asked) == 2
    server.rights["ann"] = frozenset()
    assert await status(rights, "Bearer token-ann") == 200
    await anyio.sleep(RIGHTS_HOLD_S)
    assert await status(rights, "Bearer token-ann") == 403


async def test_where_the_api_server_can_not_be_asked_nobody_is_let_in() -> None:
    server = Reviewer(USERS, RIGHTS)
    server.is_broken = True
    with pytest.raises(ApiError):
        await status(Rights(server.api()), "Bearer token-ann")

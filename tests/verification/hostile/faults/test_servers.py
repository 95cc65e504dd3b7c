"""API servers that forget between two pages or lag behind: what a client hears, and what becomes of our components."""

from __future__ import annotations

import random

import pytest

from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from tests.verification.hostile.faults.grounds import NAMESPACE, Heard, Stage, listen, stage
from tests.verification.hostile.faults.test_watches import one_a_second
from verification.hostile.faults.components import ListExpired, ServerLags


def lists(on: Stage, user: str) -> list[tuple[bool, bool, int]]:
    """The lists of pods that a user asks for from now on: whether in pages, whether a further one, the answer."""
    taken: list[tuple[bool, bool, int]] = []

    def answered(call: Call, code: int) -> None:
        if (call.user, call.verb, call.kind.plural) == (user, "list", "pods"):
            taken.append(("limit" in call.query, "continue" in call.query, code))

    on.world.server.faults.on_answer.append(answered)
    return taken


async def test_a_list_that_expires_between_its_pages_is_read_whole_in_the_end() -> None:
    async with stage() as on:
        for number in range(5):
            await on.pod(f"p-{number}", gpu_fraction="0.1")
        await on.until(20)
        taken = lists(on, "scheduler")
        on.strike(ListExpired(at_s=20, for_s=30, user="scheduler", page=2))
        await on.until(21)
        await on.pod("q", gpu_fraction="0.1")
        first, whole = (True, False, 200), (False, False, 200)
        await on.until(49)
        # The further pages were refused on their way; what was read of the lists before the third counts for nothing.
        assert taken == [first, first, whole]
        assert await on.phase("q") == "Running"


async def test_pages_that_do_not_expire_are_read_one_after_the_other() -> None:
    async with stage() as on:
        for number in range(5):
            await on.pod(f"p-{number}", gpus=0)
        await on.until(20)
        on.strike(ListExpired(at_s=20, for_s=30, user="binder", page=2, per_mille=0))
        await on.until(21)
        taken = lists(on, "binder")
        api = Api(on.world.server.transport("binder"), retry=Retry(random.Random(1)))
        listing = await api.list(PODS, namespace=NAMESPACE)
        assert len(listing.items) == 5
        assert taken == [(True, False, 200), (True, True, 200), (True, True, 200)]


async def test_a_server_that_lags_refuses_watches_from_what_it_has_not_seen() -> None:
    async with stage() as on:
        heard = Heard()
        on.strike(ServerLags(at_s=2, for_s=5, user="binder"))
        on.group.start_soon(lambda: one_a_second(on, 1, 10))
        await on.until(3.5)
        await listen(on, heard)
        assert heard.lines == [(3.5, "504", "")]
        spared = Heard()
        on.group.start_soon(lambda: listen(on, spared, user="scheduler"))
        await on.until(7.5)
        assert spared.names == ["c-4", "c-5", "c-6", "c-7"]
        late = Heard()
        on.group.start_soon(lambda: listen(on, late))
        await on.until(9.5)
        assert late.names == ["c-8", "c-9"]


@pytest.mark.parametrize("user", ["", "scheduler", "binder"])
async def test_when_the_server_has_caught_up_what_waited_runs(user: str) -> None:
    async with stage() as on:
        on.strike(ServerLags(at_s=0, for_s=60, user=user))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(150)
        assert await on.phase("p") == "Running"

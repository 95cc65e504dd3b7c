"""Free GPUs that fit no pod, counted from what is followed, also of pods without GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import NANO, node, pod
from ui.inspect.values import UnusableView
from ui.page.objects import Objects, kept
from ui.page.watch import Unusable


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    """Threads do not wait for virtual time."""
    return ("asyncio", {})


def objects() -> Objects:
    made = Objects()
    made.put_node(node("n1", gpus=2, cpu="32"))
    made.put_pod(kept(pod("w", gpus=1, cpu="4")))
    return made


def found(unusable: Unusable) -> list[tuple[str, int]]:
    return [(each.cause.value, each.nano) for each in unusable.found]


def counted(unusable: Unusable) -> list[tuple[str, int]]:
    unusable.count()
    return found(unusable)


def test_it_follows_what_changes() -> None:
    made = objects()
    unusable = Unusable(made)
    assert counted(unusable) == []
    made.put_pod(kept(pod("cpu", cpu="30", bound_to="n1", phase="Running")))
    assert counted(unusable) == [("cpu", 2 * NANO)]
    made.drop_pod("uid-cpu")
    assert counted(unusable) == []


def test_where_pods_of_some_namespaces_are_followed_nothing_is_said() -> None:
    made = objects()
    made.put_pod(kept(pod("huge", gpus=9)))
    made.drop_pod("uid-w")
    assert counted(Unusable(made)) == [("pieces", 2 * NANO)]
    made.namespaces = frozenset({"ns"})
    assert counted(Unusable(made)) == []


async def test_it_counts_by_itself_beside_what_is_drawn() -> None:
    made = objects()
    made.put_pod(kept(pod("cpu", cpu="30", bound_to="n1", phase="Running")))
    told, has_counted = list[Sequence[UnusableView]](), anyio.Event()

    def tell(counted: Sequence[UnusableView]) -> None:
        told.append(counted)
        has_counted.set()

    unusable = Unusable(made, tell)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(unusable.run)
            await has_counted.wait()
            tasks.cancel_scope.cancel()
    assert found(unusable) == [("cpu", 2 * NANO)]
    assert told == [unusable.found]

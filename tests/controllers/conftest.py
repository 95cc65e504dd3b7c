"""Moorage beside the controllers of other projects, as their users install them (tools/controllers).

The life of a workload is theirs: they make pods, count those that died, make new ones, and delete what is over.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

import pytest

from tests.controllers.workloads import Workloads
from tests.e2e.cluster import scene
from tests.e2e.conftest import last_lines
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.controllers.catalogue import Kind
from tools.controllers.running import Running

#: ``async with set_workloads("1x4x80GiB") as at:``.
SetWorkloads = Callable[..., AbstractAsyncContextManager[Workloads]]

_numbers = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the controller and the components said last with a test that failed."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for each in item.funcargs.values():
            for one in each if isinstance(each, tuple) else (each,):
                if isinstance(one, Deployment | Running):
                    report.sections += [(f"last lines of {name}", said) for name, said in last_lines(one.folder)]
    return report


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[tuple[Running, ...]]:
    """The module's controllers, there before Moorage: the podgrouper looks for kinds once a minute."""
    with ExitStack() as stack:
        running = tuple(stack.enter_context(Running(plane, each)) for each in request.module.CONTROLLERS)
        yield running
        _check(running)


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane, controllers: tuple[Running, ...]) -> Iterator[Deployment]:
    _check(controllers)
    options = Options(arguments={"binder": ["--idle-s", "1"]}, components=GROUPING)
    with Deployment(plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_workloads(
    plane: ControlPlane, controllers: tuple[Running, ...], moorage: Deployment, request: pytest.FixtureRequest
) -> SetWorkloads:
    """Set a scene of nodes and workloads. At its end all are deleted, and nothing of them may be left.

    The workloads are of the first kind of the module's last controller; ``Workloads.of`` has its other ones.
    """
    kinds: Sequence[Kind] = request.module.CONTROLLERS[-1].kinds
    label: str = request.module.NAME_LABEL
    _check(controllers)
    moorage.check()

    @asynccontextmanager
    async def make(*shapes: str) -> AsyncIterator[Workloads]:
        namespace = f"{kinds[0].plural}-{next(_numbers)}"
        async with scene(plane, namespace, shapes) as on:
            at = Workloads(on, kinds[0], name_label=label)
            yield at
            for each in kinds:
                await at.of(each).delete_all()
            await at.nothing_left()

    return make


def _check(controllers: tuple[Running, ...]) -> None:
    for each in controllers:
        each.check()

"""Moorage on the real control plane: every component a process with its own service account's token."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.e2e.cluster import Scene, scene
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import tenant
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

SetScene = Callable[[Sequence[str]], AbstractAsyncContextManager[Scene]]

SetLateScene = SetScene

_numbers = itertools.count()
#: How much of each component's log is shown with a test that failed.
_LAST_LINES = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the components said last with a test that failed: what is rare is not to be had again."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for deployment in (each for each in item.funcargs.values() if isinstance(each, Deployment)):
            report.sections += [(f"last lines of {name}", said) for name, said in last_lines(deployment.folder)]
    return report


def last_lines(folder: Path) -> Iterator[tuple[str, str]]:
    """The logs of a folder: name of the program, and what it said last."""
    for log in sorted(folder.glob("*.log")):
        yield log.stem, "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane of their own: pods that other tests leave waiting would be scheduled onto the scenes' nodes."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def moorage(control_plane: ControlPlane) -> Iterator[Deployment]:
    """Moorage with default settings, but for idle reservations that go after a second, leases, and where pods go.

    By the default strategy that follows from all pods that came before, of whatever test. A leader outlasts an API
    server that answers nothing for some seconds, as one does whose machine runs four of them: nobody starts it again.
    """
    patient = ["--lease-duration-s", "30", "--lease-renew-deadline-s", "25"]
    packed = ["--gpu-strategy=binpack", "--cpu-strategy=binpack"]
    options = Options(arguments={"binder": [*patient, "--idle-s", "1"], "scheduler": [*patient, *packed]})
    with Deployment(control_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_scene(control_plane: ControlPlane, moorage: Deployment) -> SetScene:
    """Set a scene of nodes in a namespace of its own: ``async with set_scene(["1x8x80GiB"]) as scene:``.

    A component that ended in an earlier scene is told of here, at once, and not waited for in vain.
    """
    moorage.check()

    def make(shapes: Sequence[str]) -> AbstractAsyncContextManager[Scene]:
        return scene(control_plane, f"scene-{next(_numbers)}", shapes)

    return make


@pytest.fixture(scope="module")
def late_control_plane() -> Iterator[ControlPlane]:
    """A control plane of its own for a Moorage that hears everything late: one cluster has one Moorage."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def set_late_scene(late_control_plane: ControlPlane) -> Iterator[SetLateScene]:
    """Like ``set_scene``, where the components hear the API server up to 150 ms late."""
    options = Options(arguments={"binder": ["--idle-s", "1"]}, delay_ms=150, seed=16)
    with Deployment(late_control_plane, options) as deployment:

        def make(shapes: Sequence[str]) -> AbstractAsyncContextManager[Scene]:
            return scene(late_control_plane, f"late-{next(_numbers)}", shapes)

        yield make
        deployment.check()


@pytest.fixture(scope="module")
async def standing_crowd(control_plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Crowd]:
    """Two machines and a tenant for all tests of a module."""
    namespace = f"crowd-{next(_numbers)}"
    async with scene(control_plane, namespace, ["2x4x80GiB"]) as made, tenant(control_plane, namespace) as whoever:
        yield Crowd(made, whoever, moorage)


@pytest.fixture
async def crowd(standing_crowd: Crowd) -> AsyncIterator[Crowd]:
    """A test beside a healthy neighbour, which is looked at afterwards, as are the components."""
    async with standing_crowd.with_a_neighbour():
        yield standing_crowd

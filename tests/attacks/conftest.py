"""A Moorage for attacks on the real control plane, and a tenant of it; apart from that of tests/e2e."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.e2e.cluster import scene
from tests.e2e.conftest import pytest_runtest_makereport
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import tenant
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

#: With a test that failed, what its components logged last.
__all__ = ["pytest_runtest_makereport"]


@pytest.fixture(scope="package")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane for all files of this folder; it ends before tests of other folders begin."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="package")
def moorage(control_plane: ControlPlane) -> Iterator[Deployment]:
    """Moorage with default settings, but for idle reservations that go after a second, and for where pods go."""
    packed = ["--gpu-strategy=binpack", "--cpu-strategy=binpack"]
    options = Options(arguments={"binder": ["--idle-s", "1"], "scheduler": packed})
    with Deployment(control_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture(scope="module")
async def standing_crowd(
    request: pytest.FixtureRequest, control_plane: ControlPlane, moorage: Deployment
) -> AsyncIterator[Crowd]:
    """Two machines and a tenant for all tests of a module."""
    namespace = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    async with scene(control_plane, namespace, ["2x4x80GiB"]) as made, tenant(control_plane, namespace) as whoever:
        yield Crowd(made, whoever, moorage)


@pytest.fixture
async def crowd(standing_crowd: Crowd) -> AsyncIterator[Crowd]:
    """A test beside a healthy neighbour, which is looked at afterwards, as are the components."""
    async with standing_crowd.with_a_neighbour():
        yield standing_crowd

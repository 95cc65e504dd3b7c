"""What all tests share: Hypothesis profiles, the event loop, virtual time, and the one real control plane.

Async tests just work (anyio_mode = "auto") and run on asyncio in real time. A module whose tests sleep or wait for
time-outs asks for virtual time instead, in which an hour passes at once (simulator/clock.py)::

    VIRTUAL_TIME = True

    async def test_a_lost_reservation_is_replaced_after_its_time_out() -> None:
        await anyio.sleep(3600)

A test of the real control plane is marked ``cluster`` and takes the fixture ``control_plane``; those of a process share
it, so each works in a namespace of its own. The tests of a file are all in one process, and files come in the order of
their folders (Makefile, ``test``). Those in which a whole Moorage runs have a control plane apart (tests/e2e,
tests/attacks), for others install webhooks and policies of their own.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
import pytest

from kube.telemetry.loglevel import PACKAGES
from runtime.logs import Limited
from simulator.clock import VirtualTimeLoop
from tests.whole import IS_WHOLE
from tools.cluster.plane import ControlPlane

pytest_plugins = ["tests.durations", "tests.marked", "tests.importing"]

AnyioBackend = tuple[str, dict[str, Any]]

hypothesis.settings.register_profile("dev", max_examples=15, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=15, deadline=None, derandomize=True, print_blob=True)
# As in make nightly: examples that no earlier run had.
hypothesis.settings.register_profile("whole", max_examples=500, deadline=None, print_blob=True)
hypothesis.settings.load_profile("whole" if IS_WHOLE else "ci" if os.environ.get("CI") else "dev")

#: Of garbage: objects that were made and not freed until young ones are looked through, and how often these are until
#: older ones are. With Python's own (700, 10, 10) that was 9 % of the CPU time of 10,000 snapshots (tests/oracle).
_COLLECTIONS: Final = (2_000, 20, 10)


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest, virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    """asyncio in real time, or in virtual time where the module says so, as shown above."""
    return virtual_anyio_backend if getattr(request.module, "VIRTUAL_TIME", False) else ("asyncio", {})


@pytest.fixture(scope="session")
def virtual_anyio_backend() -> AnyioBackend:
    """asyncio in virtual time: for the ``anyio_backend`` of a folder's conftest.py."""
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


@pytest.fixture(autouse=True)
def _log_of_nobody() -> Iterator[None]:
    """Remove what a component logs to: many run in one process, and the stderr of a test that is over is closed."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if type(handler) in {logging.StreamHandler, Limited}]:
        root.removeHandler(handler)
    root.setLevel(level)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real etcd, kube-apiserver and kube-controller-manager, started when the first test asks for it."""
    with ControlPlane() as plane:
        yield plane


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among 20,000 tests while they are collected (a fifth of the time), nor while they run.

    Looking through their million objects takes a second, and each test that leaves many objects would cause that.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*_COLLECTIONS)
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of the real control plane out of ``make test``."""
    if "control_plane" in getattr(item, "fixturenames", ()) and item.get_closest_marker("cluster") is None:
        raise pytest.UsageError(f"{item.nodeid} uses control_plane: mark it with pytest.mark.cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """Refuse async fixtures that outlive their module: all tests after them would run on their event loop.

    So those that ask for virtual time would be given real time.
    """
    is_async = inspect.iscoroutinefunction(fixturedef.func) or inspect.isasyncgenfunction(fixturedef.func)
    if is_async and fixturedef.scope in {"session", "package"}:
        raise pytest.UsageError(f"fixture {fixturedef.argname} is async: its scope can be a module at most")

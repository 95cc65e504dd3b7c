"""Moorage on the real control plane: every component a process with its own service account's token."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from tests.e2e.cluster import Scene, scene
from tools.cluster import ControlPlane
from tools.deployment import Deployment, Options

SetScene = Callable[[Sequence[str]], AbstractAsyncContextManager[Scene]]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def moorage(control_plane: ControlPlane) -> Iterator[Deployment]:
    """Moorage with default settings, but for idle reservations that go after a second."""
    with Deployment(control_plane, Options(arguments={"binder": ["--idle-s", "1"]})) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_scene(control_plane: ControlPlane, moorage: Deployment) -> SetScene:
    """Set a scene of nodes in a namespace of its own: ``async with set_scene(["1x8x80GiB"]) as scene:``."""
    teller = moorage.teller_token

    def make(shapes: Sequence[str]) -> AbstractAsyncContextManager[Scene]:
        return scene(control_plane, teller, f"scene-{next(_numbers)}", shapes)

    return make

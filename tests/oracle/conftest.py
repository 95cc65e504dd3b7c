"""kube-scheduler's own plug-ins, one program for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.kubeoracle import program
from tools.kubeoracle.program import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle(program.ensure()) as made:
        yield made

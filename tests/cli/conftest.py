"""Commands set up the log of their process; tests run many of them in one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kube.telemetry.loglevel import PACKAGES
from runtime.logs import Limited


@pytest.fixture(autouse=True)
def _log_of_nobody() -> Iterator[None]:
    """Take away what a command logs to: the captured stderr of a test that is over can't be written to any more."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if type(handler) in {logging.StreamHandler, Limited}]:
        root.removeHandler(handler)
    root.setLevel(level)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)

"""A deadline on a call to the API server that ends in our own Timeout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from kube.client.errors import Timeout


@contextmanager
def deadline(timeout_s: float, what: str) -> Iterator[None]:
    """Cancel the body after ``timeout_s`` and raise kube.client.errors.Timeout, naming ``what`` was called."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise Timeout(f"{what}: no answer within {timeout_s:.1f} s") from error

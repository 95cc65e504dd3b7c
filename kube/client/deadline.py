"""A deadline on a call to the API server that ends in our own Timeout."""

from __future__ import annotations

from types import TracebackType

import anyio

from kube.client.errors import Timeout


class deadline:  # noqa: N801 - used like the context managers of anyio
    """Cancel the body after ``timeout_s`` and raise kube.client.errors.Timeout, naming ``what`` was called.

    The same as ``anyio.fail_after``, without its two generators: they are a tenth of a call that succeeds at once.
    """

    __slots__ = ("_scope", "_timeout_s", "_what")

    def __init__(self, timeout_s: float, what: str) -> None:
        self._timeout_s = timeout_s
        self._what = what

    def __enter__(self) -> None:
        """Begin the time."""
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + self._timeout_s)
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it. Raises kube.client.errors.Timeout if it was over."""
        is_over = self._scope.__exit__(kind, error, traceback)  # nobody but the deadline cancels it
        if is_over or isinstance(error, TimeoutError):  # a socket's, too
            raise Timeout(f"{self._what}: no answer within {self._timeout_s:.1f} s") from error

"""The cut to the network: bytes in, bytes out, each call with a deadline; and TLS to an API server.

A call that reaches its deadline raises our own Timeout. The transport lies below everything that can be wrong, so
decoding, retries and the reflector are the same code over aiohttp (kube/client/http.py) and over the in-memory API
server (simulator/apiserver/transport.py).
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import anyio
import msgspec

from kube.client.config import Credentials
from kube.client.errors import Timeout, TooLarge


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS settings for a cluster: its CA (the system's roots if none is named) and our certificate."""
    context = ssl.create_default_context(
        cafile=credentials.ca_file or None, cadata=credentials.ca_data.decode("ascii", "ignore") or None
    )
    # Python 3.13 turned this on; clusters' CAs are made for Go, which doesn't ask for the extensions that it wants.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credentials.has_certificate:
        _load_certificate(context, credentials)
    if not credentials.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load our certificate and its key. OpenSSL takes files only, so what is none is one for a moment, for us alone."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        files = []
        for name, data, file in (
            ("cert", credentials.client_cert_data, credentials.client_cert_file),
            ("key", credentials.client_key_data, credentials.client_key_file),
        ):
            if data:
                file = str(Path(folder) / name)  # noqa: PLW2901 - the same, as a file
                Path(file).touch(mode=0o600)
                Path(file).write_bytes(data)
            files.append(file or None)
        context.load_cert_chain(files[0] or "", files[1])


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


#: What is accepted as an answer: whole objects, or of each its metadata (PartialObjectMetadata).
JSON: Final = "application/json"
METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LISTED_METADATA: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: The longest answer that is read for one object. etcd takes 1.5 MiB, where a control character is one byte; as JSON
#: it is six (``\\u0001``), and protobuf has no names of fields. No object is longer, with etcd's usual limit.
OBJECT_BYTES: Final = 16 << 20
#: The longest line of a watch: an object, and the type of its event.
LINE_BYTES: Final = OBJECT_BYTES + (1 << 10)
#: Of the answer of a refusal no more is read: its head says what it is.
ERROR_BYTES: Final = 64 << 10

#: RFC 3986, 3.3: segments that are quoted already.
_PATH: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)+", re.ASCII)
_DOTS: Final = frozenset({".", ".."})
_DOT: Final = "/."


class Response(msgspec.Struct, frozen=True):
    """An answer with its whole body. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Carries requests to one API server under one identity."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        """Send one request and return its answer, with any status.

        ``path`` is percent-quoted and goes out as it is: one with a query, or with a segment ``..``, raises
        ValueError. An answer that is longer than ``most_bytes`` is not read to its end: kube.client.errors.TooLarge.
        That of a refusal is cut at ERROR_BYTES instead. ``accept``: JSON, METADATA or LISTED_METADATA.

        Raises kube.client.errors.Timeout or kube.client.errors.Unreachable when no whole answer came.
        """
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch (GET). Yields the answer's head and its lines as they come.

        On a status other than 200 the Response carries the whole body and there are no lines. ``timeout_s`` bounds
        the wait for the head only; silence is the reader's to judge. A broken connection raises Unreachable from the
        iterator, a line above LINE_BYTES TooLarge; an orderly end of the stream just ends it.
        """
        ...


def target(path: str, query: Mapping[str, str]) -> str:
    """Return path and query of a request as they go out. Raises ValueError for a path that says more than where.

    Nothing between here and the server may resolve ``..`` or quote again, so that what was checked is what is asked.
    """
    check_path(path)
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def check_path(path: str) -> None:
    """Raise ValueError for a path that says more than where."""
    if not _PATH.fullmatch(path) or (_DOT in path and not _DOTS.isdisjoint(path.split("/"))):
        raise ValueError(f"{path[:200]!r}: not a path of quoted segments; take it from Resource.path")


def most_read(status: int, most_bytes: int) -> int:
    """Return how many bytes of an answer are read."""
    return most_bytes if status < 300 else min(most_bytes, ERROR_BYTES)


def too_large(method: str, path: str, most_bytes: int) -> TooLarge:
    """Return the error for an answer, or a line of a watch, that is longer than it may be."""
    return TooLarge(f"{method} {path}: the answer is longer than {most_bytes} bytes, and was not read")


def whole(method: str, path: str, response: Response, most_bytes: int) -> Response:
    """Return an answer that is in memory, as a connection with this limit passes it on. Raises TooLarge."""
    most = most_read(response.status, most_bytes)
    if len(response.body) <= most:
        return response
    if response.status < 300:
        raise too_large(method, path, most)
    return Response(response.status, response.headers, response.body[:most])

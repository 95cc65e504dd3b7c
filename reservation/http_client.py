"""One request at a time to the API server, with the standard library only.

There is one of these processes per shared GPU, which is why it does not use kube/ (aiohttp and msgspec more than
double its memory). Not for general use: no keep-alive, no redirects, no proxies, answers read whole.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from reservation.steps import MERGE_PATCH, Answer, Call, NoAnswer

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Overrides, for a process outside of a cluster. Plain ``http://`` is allowed there.
ENV_API_SERVER = "MOORAGE_API_SERVER"
ENV_TOKEN_FILE = "MOORAGE_API_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a secret
ENV_CA_FILE = "MOORAGE_API_CA_FILE"
ENV_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
ENV_SERVICE_PORT = "KUBERNETES_SERVICE_PORT"

#: More than the largest object that etcd takes by default (1.5 MiB).
_MAX_BODY_BYTES = 4 << 20
#: Read at a time: what a server announces is not made room for at once.
_CHUNK_BYTES = 1 << 16


class Misconfigured(ValueError):
    """Raised when the environment does not say where the API server is; the message names variable and remedy."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is and what we show to it. Empty file names: no token, no CA (plain HTTP)."""

    host: str
    port: int
    tls: bool
    token_file: str
    ca_file: str


def endpoint(environ: Mapping[str, str]) -> Endpoint:
    """Read the endpoint from the environment: the override if there is one, else what kubelet injects.

    Raises Misconfigured.
    """
    if url := environ.get(ENV_API_SERVER, ""):
        return _from_url(url, environ)
    host, port = environ.get(ENV_SERVICE_HOST, ""), environ.get(ENV_SERVICE_PORT, "443")
    if not host:
        raise Misconfigured(f"{ENV_SERVICE_HOST} is not set: run inside a cluster, or set {ENV_API_SERVER}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Misconfigured(f"{ENV_SERVICE_PORT} is {port!r}: a port number from 1 to 65535 is allowed")
    return Endpoint(
        host=host,
        port=int(port),
        tls=True,
        token_file=environ.get(ENV_TOKEN_FILE, f"{SERVICE_ACCOUNT}/token"),
        ca_file=environ.get(ENV_CA_FILE, f"{SERVICE_ACCOUNT}/ca.crt"),
    )


def _from_url(url: str, environ: Mapping[str, str]) -> Endpoint:
    refusal = f"{ENV_API_SERVER} is {url!r}: http://HOST:PORT or https://HOST:PORT is allowed"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Misconfigured(refusal) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise Misconfigured(refusal)
    tls = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if tls else 80),
        tls=tls,
        token_file=environ.get(ENV_TOKEN_FILE, ""),
        ca_file=environ.get(ENV_CA_FILE, ""),
    )


class ApiServer:
    """Carries steps.Call out. ``timeout_s`` bounds connecting, each wait for bytes, and reading the body in all."""

    def __init__(self, server: Endpoint, *, timeout_s: float = 5.0) -> None:
        self._server = server
        self._timeout_s = timeout_s

    def call(self, call: Call) -> Answer | NoAnswer:
        """Send one request on a connection of its own. Each fault on the way is a NoAnswer."""
        try:
            connection = self._connection()
            try:
                return self._exchange(connection, call)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return NoAnswer(f"{self._server.host}:{self._server.port}: {str(error) or type(error).__name__}")

    def _connection(self) -> http.client.HTTPConnection:
        server = self._server
        if not server.tls:
            return http.client.HTTPConnection(server.host, server.port, timeout=self._timeout_s)
        # Without a CA file the system's are used, as for any other https URL.
        context = ssl.create_default_context(cafile=server.ca_file or None)
        return http.client.HTTPSConnection(server.host, server.port, timeout=self._timeout_s, context=context)

    def _exchange(self, connection: http.client.HTTPConnection, call: Call) -> Answer:
        target = f"{call.path}?{urlencode(call.query)}" if call.query else call.path
        connection.request(call.method, target, body=call.body, headers=self._headers(call))
        response = connection.getresponse()
        body = self._body(response)
        return Answer(response.status, body, _seconds(response.getheader("Retry-After")))

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close", "User-Agent": "moorage-reservation"}
        if call.body is not None:
            headers["Content-Type"] = MERGE_PATCH
        if self._server.token_file:
            # Read each time: kubelet renews it within the hour.
            token = Path(self._server.token_file).read_text(encoding="ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        deadline_s = time.monotonic() + self._timeout_s
        body = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                raise http.client.HTTPException(f"the answer is longer than {_MAX_BODY_BYTES} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError("the answer did not end in time")
        if response.length:
            raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body)


def _seconds(header: str | None) -> float:
    """Whole seconds of a Retry-After header; its other form, a date, is not used by API servers."""
    return float(header) if header and header.isascii() and header.isdigit() else 0.0

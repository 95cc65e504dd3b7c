"""A few calls on an API server with nothing but the standard library: for setting clusters up, not for the product."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_S = 60.0


class RestError(Exception):
    """Raised when the API server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Rest:
    """Calls on one API server under one identity, a connection each."""

    url: str
    ca_pem: str
    token: str

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send JSON, return JSON. Raises RestError for an error answer and OSError for none."""
        code, answer = self.send(method, path, json.dumps(body).encode() if body is not None else None)
        if code >= 400:
            raise RestError(code, _message(answer))
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status code and body, of errors too; a PATCH merges. Raises OSError when no answer came."""
        address = urlsplit(self.url)
        trust = ssl.create_default_context(cadata=self.ca_pem)
        assert address.hostname is not None
        connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=_TIMEOUT_S, context=trust)
        try:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as broken:
            raise ConnectionError(f"{method} {path}: {broken!r}") from broken
        finally:
            connection.close()


def _message(body: bytes) -> str:
    """Return the text of a Status, or the body where it is none."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")

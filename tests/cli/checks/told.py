"""A transport whose answers are told beforehand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from kube.client.errors import Unreachable
from kube.client.transport import JSON, OBJECT_BYTES, Response


class Told:
    """Answers by path; what was not told is ``other``, by default not found. ``None``: no answer comes."""

    def __init__(self, answers: Mapping[str, Any], *, other: Any = (404, {"message": "not found"})) -> None:
        self._answers = answers
        self._other = other
        self.asked: list[tuple[str, str, dict[str, str]]] = []

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
        self.asked.append((method, path, dict(query)))
        key = path + (f"?continue={query['continue']}" if "continue" in query else "")
        answer = self._answers.get(key, self._other)
        if answer is None:
            raise Unreachable(f"{method} {path}: cut")
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        return Response(status, {}, content if isinstance(content, bytes) else msgspec.json.encode(content))

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        raise NotImplementedError("checks watch nothing")

"""An API server that knows one pod: GET and merge-patch with the UID precondition, on loopback, plain or over TLS."""

from __future__ import annotations

import copy
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

NAMESPACE = "kai-resource-reservation"
NAME = "gpu-reservation-0123456789abcdef"
UID = "11111111-1111-4111-8111-111111111111"
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}"


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: Any


@dataclass
class PodServer:
    """The pod's annotations and UID, all requests so far, and answers to give before the real ones."""

    annotations: dict[str, str] = field(default_factory=dict)
    uid: str = UID
    seen: list[Seen] = field(default_factory=list)
    #: (method it is for, status, headers, body), each used once.
    scripted: deque[tuple[str, int, dict[str, str], bytes]] = field(default_factory=deque)
    url: str = ""
    #: UID of the pod that takes this one's place and name after the next answer.
    successor: str = ""

    @property
    def methods(self) -> list[str]:
        return [seen.method for seen in self.seen]

    def script(self, method: str, status: int, *, message: str = "", headers: dict[str, str] | None = None) -> None:
        self.scripted.append((method, status, headers or {}, _status(status, message)))

    def pod(self) -> dict[str, Any]:
        metadata = {"namespace": NAMESPACE, "name": NAME, "uid": self.uid, "annotations": dict(self.annotations)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": copy.deepcopy(metadata)}

    def answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        self.seen.append(seen)
        answer = self._answer(seen)
        self.uid, self.successor = self.successor or self.uid, ""
        return answer

    def _answer(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if self.scripted and self.scripted[0][0] == seen.method:
            return self.scripted.popleft()[1:]
        if seen.target.partition("?")[0] != PATH:
            return 404, {}, _status(404, f'pods "{seen.target}" not found')
        return self._patch(seen.body) if seen.method == "PATCH" else (200, {}, json.dumps(self.pod()).encode())

    def _patch(self, body: Any) -> tuple[int, dict[str, str], bytes]:
        wanted = body["metadata"]["uid"]
        if wanted != self.uid:
            text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {self.uid}"
            return 409, {}, _status(409, text)
        for key, value in body["metadata"]["annotations"].items():
            if value is None:
                self.annotations.pop(key, None)
            else:
                self.annotations[key] = value
        return 200, {}, json.dumps(self.pod()).encode()


@contextmanager
def serving(state: PodServer, context: ssl.SSLContext | None = None) -> Iterator[PodServer]:
    """Serve until the block ends; ``state.url`` says where."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            status, headers, answer = state.answer(Seen(self.command, self.path, dict(self.headers.items()), body))
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PATCH = _handle  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]  # typing.override: 3.12
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    state.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _status(code: int, message: str) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "code": code, "message": message}).encode()

"""Calls of tools/rest.py on a server that counts its connections."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from trustme import CA
from typing_extensions import override

from tools.ports import free_port
from tools.rest import Connections, Rest, RestError


class _Server(ThreadingHTTPServer):
    """Answers a path ``/code`` with this code; ``/end`` ends the connection after its answer, without saying so."""

    daemon_threads = True

    def __init__(self, trust: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket = trust.wrap_socket(self.socket, server_side=True)
        self.ended = threading.Event()
        self.opened = 0

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        self.opened += 1
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.ended.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/end" else int(self.path[1:]))
        self.send_header("Content-Length", "2")
        if self.path == "/201":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"{}")
        self.close_connection = self.path in {"/end", "/201"}

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def authority() -> CA:
    return CA()


@pytest.fixture
def server(authority: CA) -> Iterator[_Server]:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(trust)
    with _Server(trust) as made:
        serving = threading.Thread(target=made.serve_forever, args=[0.01])
        serving.start()
        yield made
        made.shutdown()
        serving.join()


@pytest.fixture
def rest(server: _Server, authority: CA) -> Iterator[Rest]:
    url, ca_pem = f"https://127.0.0.1:{server.server_port}", authority.cert_pem.bytes().decode()
    connections = Connections(url, ca_pem)
    yield Rest(url, ca_pem, "token", connections)
    connections.close()


def test_calls_after_each_other_have_one_connection_whatever_is_answered(server: _Server, rest: Rest) -> None:
    rest.call("GET", "/200")
    with pytest.raises(RestError):
        rest.call("GET", "/404")
    assert rest.send("GET", "/500") == (500, b"{}")
    assert server.opened == 1


def test_a_connection_that_the_server_has_closed_is_not_used_again(server: _Server, rest: Rest) -> None:
    assert rest.send("GET", "/end")[0] == 200
    assert server.ended.wait(30)
    assert rest.send("GET", "/200")[0] == 200
    assert rest.send("GET", "/201")[0] == 201  # the server says that it closes this one
    assert rest.send("GET", "/200")[0] == 200
    assert server.opened == 3


def test_without_connections_each_call_has_its_own(server: _Server, rest: Rest) -> None:
    alone = Rest(rest.url, rest.ca_pem, rest.token)
    for _ in range(2):
        assert alone.send("GET", "/200")[0] == 200
    assert server.opened == 2


def test_where_nobody_listens_an_os_error_is_raised(authority: CA) -> None:
    url, ca_pem = f"https://127.0.0.1:{free_port()}", authority.cert_pem.bytes().decode()
    with pytest.raises(OSError, match="refused"):
        Rest(url, ca_pem, "", Connections(url, ca_pem)).send("GET", "/200")

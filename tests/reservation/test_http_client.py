from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reservation.http_client import ApiServer, Endpoint, Misconfigured, endpoint
from reservation.steps import Answer, Call, NoAnswer
from tests.reservation.conftest import Certificates
from tests.reservation.pod_server import PATH, UID, PodServer, serving

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


PATCH = json.dumps({"metadata": {"uid": UID, "annotations": {"a": "b"}}}).encode()


def plain(port: int, token_file: str = "") -> Endpoint:
    return Endpoint(host="127.0.0.1", port=port, tls=False, token_file=token_file, ca_file="")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"},
            Endpoint("10.96.0.1", 6443, tls=True, token_file=f"{ACCOUNT}/token", ca_file=f"{ACCOUNT}/ca.crt"),
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "MOORAGE_API_TOKEN_FILE": "/t", "MOORAGE_API_CA_FILE": "/c"},
            Endpoint("fd00::1", 443, tls=True, token_file="/t", ca_file="/c"),
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"},
            Endpoint("h", 1, tls=True, token_file=f"{ACCOUNT}/token", ca_file=f"{ACCOUNT}/ca.crt"),
        ),
        (
            {"MOORAGE_API_SERVER": "http://127.0.0.1:8001/", "KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            Endpoint("127.0.0.1", 8001, tls=False, token_file="", ca_file=""),
        ),
        (
            {"MOORAGE_API_SERVER": "http://api.internal"},
            Endpoint("api.internal", 80, tls=False, token_file="", ca_file=""),
        ),
        (
            {"MOORAGE_API_SERVER": "https://[::1]", "MOORAGE_API_CA_FILE": "/c"},
            Endpoint("::1", 443, tls=True, token_file="", ca_file="/c"),
        ),
    ],
)
def test_the_endpoint_is_read_from_the_environment(environ: dict[str, str], expected: Endpoint) -> None:
    assert endpoint(environ) == expected


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ["KUBERNETES_SERVICE_HOST", "MOORAGE_API_SERVER"]),
        ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "http"}, ["KUBERNETES_SERVICE_PORT", "'http'"]),
        ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "0"}, ["KUBERNETES_SERVICE_PORT", "'0'"]),
        ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "65536"}, ["KUBERNETES_SERVICE_PORT", "65535"]),
        ({"MOORAGE_API_SERVER": "localhost:8001"}, ["MOORAGE_API_SERVER", "'localhost:8001'", "http://HOST:PORT"]),
        ({"MOORAGE_API_SERVER": "http://h:x"}, ["MOORAGE_API_SERVER", "'http://h:x'"]),
        ({"MOORAGE_API_SERVER": "https://h/prefix"}, ["MOORAGE_API_SERVER", "'https://h/prefix'"]),
    ],
)
def test_a_bad_environment_is_refused_by_name_and_value(environ: dict[str, str], names: list[str]) -> None:
    with pytest.raises(Misconfigured) as refused:
        endpoint(environ)
    for name in names:
        assert name in str(refused.value)


def test_the_token_is_read_for_each_call(api: PodServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    server = ApiServer(plain(int(api.url.rpartition(":")[2]), str(token)))
    for text in ("first", "renewed"):
        token.write_text(text)
        server.call(Call("GET", PATH))
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer first", "Bearer renewed"]


def test_a_token_that_is_not_there_yet_is_no_answer(api: PodServer, tmp_path: Path) -> None:
    answer = ApiServer(plain(int(api.url.rpartition(":")[2]), str(tmp_path / "token"))).call(Call("GET", PATH))
    assert isinstance(answer, NoAnswer)
    assert str(tmp_path / "token") in answer.message
    assert api.seen == []


@pytest.mark.parametrize(
    ("call", "target", "content_type"),
    [
        (Call("GET", PATH), PATH, None),
        (Call("PATCH", PATH, {"timeout": "4s"}, PATCH), f"{PATH}?timeout=4s", "application/merge-patch+json"),
    ],
)
def test_a_call_is_sent_as_it_is_said(api: PodServer, call: Call, target: str, content_type: str | None) -> None:
    answer = ApiServer(plain(int(api.url.rpartition(":")[2]))).call(call)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    (seen,) = api.seen
    assert (seen.method, seen.target, seen.headers.get("Content-Type")) == (call.method, target, content_type)
    assert seen.body == (json.loads(PATCH) if call.body else None)
    assert "Authorization" not in seen.headers


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("-1", 0.0)])
def test_retry_after_is_read_in_seconds(api: PodServer, header: str, seconds: float) -> None:
    api.script("GET", 429, headers={"Retry-After": header})
    answer = ApiServer(plain(int(api.url.rpartition(":")[2]))).call(Call("GET", PATH))
    assert isinstance(answer, Answer)
    assert (answer.status, answer.retry_after_s) == (429, seconds)


def test_a_server_with_a_foreign_certificate_gets_no_token(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with serving(PodServer(), certificates.server_context) as api:
        system_only = Endpoint(
            "127.0.0.1", int(api.url.rpartition(":")[2]), tls=True, token_file=str(tmp_path / "token"), ca_file=""
        )
        answer = ApiServer(system_only).call(Call("GET", PATH))
    assert isinstance(answer, NoAnswer)
    assert "CERTIFICATE_VERIFY_FAILED" in answer.message
    assert api.seen == []


def test_a_server_whose_certificate_the_given_authority_signed_is_trusted(certificates: Certificates) -> None:
    with serving(PodServer(), certificates.server_context) as api:
        port = int(api.url.rpartition(":")[2])
        trusting = Endpoint("127.0.0.1", port, tls=True, token_file="", ca_file=str(certificates.ca_file))
        answer = ApiServer(trusting).call(Call("GET", PATH))
    assert isinstance(answer, Answer)
    assert answer.status == 200


@contextmanager
def raw_server(reply: bytes, *, then_close: bool) -> Iterator[int]:
    """Answers one connection with these bytes, and then closes it or stays silent until the block ends."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)
                if not then_close:
                    done.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    ("reply", "then_close", "told"),
    [
        (b"", True, "closed connection"),
        (b"", False, "timed out"),
        (b"SSH-2.0-x\r\n", True, "SSH-2.0-x"),
        (HEAD + b"half", True, "4 bytes read, 6 more expected"),
        (HEAD + b"half", False, "timed out"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 5_000_000, True, "longer than 4194304 bytes"),
    ],
)
def test_half_an_answer_is_no_answer(reply: bytes, then_close: bool, told: str) -> None:
    with raw_server(reply, then_close=then_close) as port:
        answer = ApiServer(plain(port), timeout_s=0.2).call(Call("GET", PATH))
    assert isinstance(answer, NoAnswer)
    assert told in answer.message
    assert answer.message.startswith(f"127.0.0.1:{port}: ")


def test_an_answer_of_the_longest_length_that_is_allowed_is_read_whole() -> None:
    body = b"x" * 4_194_304
    with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n" + body, then_close=True) as port:
        assert ApiServer(plain(port)).call(Call("GET", PATH)) == Answer(200, body)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\nall of it", then_close=True) as port:
        assert ApiServer(plain(port)).call(Call("GET", PATH)) == Answer(200, b"all of it")

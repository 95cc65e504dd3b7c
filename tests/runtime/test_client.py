"""Which API server a command of people reaches, and as whom: what its options name, else what kubectl would."""

from __future__ import annotations

import argparse
import math
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from kube.client.config import ConfigError, Credentials
from kube.client.http import HttpTransport
from kube.client.http_reads import HttpReads
from kube.client.transport import JSON, OBJECT_BYTES, Response
from runtime import connections
from runtime.client import Limited, named, reached
from runtime.options import connection
from runtime.options.connection import Where
from runtime.process import listening
from runtime.settings.common import Connection
from runtime.text import BadInput

COMMANDS = ("inspect", "check", "check-kai", "clean-nodes", "upgrade-crds", "top", "ui")


def kubeconfig(path: Path, server: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority": "/ca.crt"}},
            {"name": "other", "cluster": {"server": "https://other:6443"}},
        ],
        "users": [{"name": "u", "user": {"token": "t", "client-certificate": "/u.crt", "as": "jane"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's own folder, and an environment that knows no cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def own(home: Path) -> Path:
    """The same with a kubeconfig."""
    kubeconfig(home / ".kube" / "config", "https://of-home:6443")
    return home


async def shown(credentials: Credentials) -> str:
    return await credentials.authorization() if credentials.authorization else ""


async def test_people_reach_what_they_name_then_what_kubeconfig_says_then_their_own_file(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await named(Where())).server == "https://of-home:6443"
    monkeypatch.setenv("KUBECONFIG", kubeconfig(own / "environment", "https://of-environment:6443"))
    assert (await named(Where())).server == "https://of-environment:6443"
    where = Where(kubeconfig=kubeconfig(own / "named", "https://named:6443"))
    assert (await named(where)).server == "https://named:6443"
    assert (await named(Where(server="https://told:6443"))).server == "https://told:6443"


@pytest.mark.parametrize(("names", "is_found"), [("missing", False), ("missing:other", False), ("missing:there", True)])
async def test_a_kubeconfig_variable_has_to_name_a_file_that_is_there(
    names: str, is_found: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(home / "there", "https://there:6443")
    value = ":".join(str(home / name) for name in names.split(":"))
    monkeypatch.setenv("KUBECONFIG", value)
    if is_found:
        assert (await named(Where())).server == "https://there:6443"
        return
    with pytest.raises(BadInput) as caught:
        await named(Where())
    assert str(caught.value) == f"KUBECONFIG={value}: there is no such file"


@pytest.mark.usefixtures("own")
async def test_a_server_is_reached_as_the_user_of_the_kubeconfig_as_by_kubectl() -> None:
    found = await named(Where(server="https://told:6443/"))
    assert (found.server, found.ca_file, found.client_cert_file) == ("https://told:6443", "/ca.crt", "/u.crt")
    assert await shown(found) == "Bearer t"


async def test_a_token_file_is_the_whole_identity(own: Path) -> None:
    (own / "token").write_text("of-file")
    given = Where(token_file=str(own / "token"))
    found = await named(given)
    assert (await shown(found), found.client_cert_file, found.headers) == ("Bearer of-file", "", ())
    found = await named(given._replace(server="https://told:6443", ca_file="/mine.crt"))
    assert (found.server, found.ca_file, await shown(found)) == ("https://told:6443", "/mine.crt", "Bearer of-file")
    assert (await named(given._replace(server="https://told:6443"))).ca_file == ""
    with pytest.raises(BadInput, match="--token-file /nowhere: missing or empty"):
        await named(Where(token_file="/nowhere"))


@pytest.mark.usefixtures("own")
async def test_somebody_is_impersonated_with_groups_instead_of_whom_the_kubeconfig_names() -> None:
    assert (await named(Where())).headers == (("Impersonate-User", "jane"),)
    found = await named(Where(act_as="jack", act_as_groups=("dev", "ops")))
    assert found.headers == (("Impersonate-User", "jack"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))


@pytest.mark.usefixtures("own")
async def test_another_cluster_of_the_kubeconfig_is_reached_as_the_same_user() -> None:
    found = await named(Where(cluster="other"))
    assert (found.server, await shown(found)) == ("https://other:6443", "Bearer t")
    with pytest.raises(BadInput, match="no cluster 'x'; it has c, other"):
        await named(Where(cluster="x"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("home")
def test_without_any_cluster_a_command_says_how_to_name_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--listen", f"127.0.0.1:{_free_port()}"] if command == "ui" else []
    assert main([command, *given]) == 2
    assert "name --kubeconfig, or set KUBECONFIG" in capsys.readouterr().err


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.mark.usefixtures("own")
def test_certificates_that_can_not_be_used_are_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moorage: the certificates for https://of-home:6443 can't be used: ")


# --- limits ----------------------------------------------------------------------------------------------------------
class Noting:
    """Notes how long each request may take."""

    def __init__(self) -> None:
        self.limits: list[float] = []

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
        self.limits.append(timeout_s)
        return Response(200, {}, b"{}")

    def stream(self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float) -> Any:
        self.limits.append(timeout_s)


@pytest.mark.parametrize(
    ("limit_s", "read", "write", "watch"),
    [(2.0, 2.0, 2.0, 2.0), (60.0, 60.0, 11.0, 11.0), (math.inf, math.inf, 11.0, 11.0)],
)
async def test_reads_take_as_long_as_the_user_allows_and_writes_no_longer_than_the_server(
    limit_s: float, read: float, write: float, watch: float
) -> None:
    noting = Noting()
    limited = Limited(noting, limit_s)
    await limited.request("GET", "/", query={}, timeout_s=11.0)
    await limited.request("PATCH", "/", query={}, timeout_s=11.0)
    limited.stream("/", query={}, timeout_s=11.0)
    assert noting.limits == [read, write, watch]


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.usefixtures("home")
def test_a_request_ends_within_the_time_that_is_given(silent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--server", silent, "--request-timeout=100ms"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "moorage: GET /api/v1/nodes: no answer within 0.1 s"


@pytest.mark.parametrize(
    ("only_reads", "proxy", "kind"),
    [(True, "", HttpReads), (True, "http://proxy:3128", HttpTransport), (False, "", HttpTransport)],
)
async def test_only_what_reads_without_a_proxy_does_without_aiohttp(
    only_reads: bool, proxy: str, kind: type, own: Path
) -> None:
    parser = argparse.ArgumentParser()
    connection.add(parser)
    arguments = parser.parse_args(["--kubeconfig", with_proxy(own / "config", proxy)])
    async with reached(arguments, "inspect", only_reads=only_reads) as cluster:
        assert isinstance(cluster.transport, kind)


def with_proxy(path: Path, proxy: str) -> str:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://there:8080", "proxy-url": proxy}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


async def test_a_component_does_not_take_somebodys_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="not in a cluster"):
        await connections.credentials(Connection())


def test_an_address_that_is_taken_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with pytest.raises(BadInput, match=f"--inspect-address: 127.0.0.1:{address[1]}: ") as caught:
            listening("--inspect-address", address)
    assert len(str(caught.value).splitlines()) == 1


def test_without_an_address_nothing_listens() -> None:
    assert listening("--inspect-address", None) is None

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest

from kube.client import config

VIRTUAL_TIME = True


ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("PEM")
    return tmp_path


async def authorization(credentials: config.Credentials) -> str:
    assert credentials.authorization is not None
    return await credentials.authorization()


async def test_plain_credentials_are_as_told() -> None:
    credentials = config.plain("https://h:1", ca_file="/ca", token="t")
    assert (credentials.server, credentials.ca_file) == ("https://h:1", "/ca")
    assert await authorization(credentials) == "Bearer t"
    assert config.plain("https://h:1").authorization is None


async def test_inside_a_cluster_the_service_account_says_it_all(account: Path) -> None:
    credentials = config.in_cluster(environ=ENVIRON, service_account_dir=account)
    assert (credentials.server, credentials.ca_file) == ("https://10.0.0.1:443", str(account / "ca.crt"))
    assert await authorization(credentials) == "Bearer one"


async def test_an_ipv6_service_stands_in_brackets(account: Path) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert config.in_cluster(environ=environ, service_account_dir=account).server == "https://[fd00::1]:443"


async def test_a_token_is_read_again_when_it_is_a_minute_old(account: Path) -> None:
    credentials = config.in_cluster(environ=ENVIRON, service_account_dir=account)
    assert await authorization(credentials) == "Bearer one"
    (account / "token").write_text("two")
    await anyio.sleep(59.0)
    assert await authorization(credentials) == "Bearer one"
    await anyio.sleep(1.0)
    assert await authorization(credentials) == "Bearer two"


@pytest.mark.parametrize("state", ["missing", "empty"])
async def test_a_token_file_in_the_middle_of_a_change_leaves_the_last_token_in_use(account: Path, state: str) -> None:
    credentials = config.in_cluster(environ=ENVIRON, service_account_dir=account)
    assert await authorization(credentials) == "Bearer one"
    (account / "token").unlink() if state == "missing" else (account / "token").write_text("")
    await anyio.sleep(60.0)
    assert await authorization(credentials) == "Bearer one"


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "token", "ca.crt"])
async def test_outside_a_cluster_it_says_what_is_missing(account: Path, missing: str) -> None:
    (account / missing).unlink(missing_ok=True)
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    with pytest.raises(config.ConfigError, match=missing):
        config.in_cluster(environ=environ, service_account_dir=account)


_LOADS_THE_BIG_CLIENT = """
import sys, anyio
from kube.client import config, http

async def load():
    try:
        await config.from_kubeconfig(path=sys.argv[1], context=sys.argv[2])
    except config.ConfigError as error:
        print(error)

anyio.run(load)
sys.exit("kubernetes_asyncio" in sys.modules)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("context", "is_loaded"), [("one", False), ("two", False), ("three", True)])
def test_the_big_client_is_imported_for_plugins_alone(kubeconfig: str, context: str, is_loaded: bool) -> None:
    command = [sys.executable, "-c", _LOADS_THE_BIG_CLIENT, kubeconfig, context]
    assert subprocess.run(command, check=False).returncode == is_loaded


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "by-token"}},
        {"name": "two", "context": {"cluster": "c", "user": "by-file"}},
        {"name": "three", "context": {"cluster": "c", "user": "by-exec"}},
    ],
    "clusters": [
        {
            "name": "c",
            "cluster": {"server": "https://h:6443/", "tls-server-name": "api.test", "certificate-authority": "ca.crt"},
        }
    ],
    "users": [
        {"name": "by-token", "user": {"token": "one"}},
        {"name": "by-file", "user": {"tokenFile": "token"}},
        {
            "name": "by-exec",
            "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin-here"}},
        },
    ],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("from-file")
    (tmp_path / "ca.crt").write_text("PEM")
    path = tmp_path / "config"
    path.write_bytes(msgspec.yaml.encode(KUBECONFIG))
    return str(path)


async def test_a_kubeconfig_gives_the_context_asked_for(kubeconfig: str, tmp_path: Path) -> None:
    credentials = await config.from_kubeconfig(path=kubeconfig)
    assert credentials.ca_file == str(tmp_path / "ca.crt")
    assert (credentials.server, credentials.tls_server_name) == ("https://h:6443", "api.test")
    assert await authorization(credentials) == "Bearer one"
    assert await authorization(await config.from_kubeconfig(path=kubeconfig, context="two")) == "Bearer from-file"


async def test_a_kubeconfigs_token_is_renewed(kubeconfig: str, tmp_path: Path) -> None:
    credentials = await config.from_kubeconfig(path=kubeconfig, context="two")
    (tmp_path / "token").write_text("renewed")
    assert await authorization(credentials) == "Bearer from-file"
    await anyio.sleep(61.0)
    assert await authorization(credentials) == "Bearer renewed"


@pytest.mark.parametrize("context", ["nine", "three"], ids=["no such context", "its plugin is missing"])
async def test_a_kubeconfig_that_gives_no_credentials_is_refused(kubeconfig: str, context: str) -> None:
    with pytest.raises(config.ConfigError, match="kubeconfig"):
        await config.from_kubeconfig(path=kubeconfig, context=context)


@pytest.mark.parametrize("text", ["a: [", "- a", "", "3", "contexts: 1", "clusters: []\ncontexts: {}\nusers: []"])
async def test_a_file_that_is_no_kubeconfig_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(config.ConfigError, match="kubeconfig") as caught:
        await config.from_kubeconfig(path=str(path))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("text", "why"), [('"text"', ""), ("a: [", ": line 2, column 1: ")])
async def test_a_file_that_is_no_kubeconfig_is_told_without_a_parsers_own_words(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        await config.from_kubeconfig(path=str(path))
    assert str(caught.value).startswith(f"{path} is not a kubeconfig{why}")
    assert "item assignment" not in str(caught.value)


async def test_the_namespace_is_that_of_the_context_or_of_the_pod(account: Path, tmp_path: Path) -> None:
    ours = msgspec.json.decode(msgspec.json.encode(KUBECONFIG))
    ours["contexts"][0]["context"]["namespace"] = "team"
    path = tmp_path / "with-namespace"
    path.write_bytes(msgspec.yaml.encode(ours))
    assert (await config.from_kubeconfig(path=str(path))).namespace == "team"
    assert (await config.from_kubeconfig(path=str(path), context="two")).namespace == ""
    assert config.in_cluster(environ=ENVIRON, service_account_dir=account).namespace == ""
    (account / "namespace").write_text("mine\n")
    assert config.in_cluster(environ=ENVIRON, service_account_dir=account).namespace == "mine"

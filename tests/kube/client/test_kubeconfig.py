"""A kubeconfig says what it says to kubectl."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube.client import config
from kube.client.config import BadKubeconfig

SERVER = {"server": "https://a:6443"}


def written(
    folder: Path, cluster: Mapping[str, Any] | None = None, *, user: dict[str, Any] | None = None, current: str = "at-a"
) -> str:
    """A file with a context, the clusters a and b, and a user."""
    folder.mkdir(exist_ok=True, parents=True)
    told = {
        "current-context": current,
        "contexts": [{"name": "at-a", "context": {"cluster": "a", "user": "u", "namespace": "team"}}],
        "clusters": [
            {"name": "a", "cluster": {**SERVER, **(cluster or {})}},
            {"name": "b", "cluster": {"server": "https://b:6443", "insecure-skip-tls-verify": True}},
        ],
        "users": [{"name": "u", "user": user or {}}],
    }
    (folder / "config").write_bytes(msgspec.yaml.encode(told))
    return str(folder / "config")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def shown(credentials: config.Credentials) -> str:
    return await credentials.authorization() if credentials.authorization else ""


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, f"Basic {encoded('u:p')}"),
        ({"token": "t", "username": "u", "password": "p"}, "Bearer t"),
        ({"username": "u"}, ""),
        ({}, ""),
    ],
)
async def test_a_user_is_known_by_what_its_fields_hold(tmp_path: Path, user: dict[str, Any], header: str) -> None:
    assert await shown(await config.from_kubeconfig(path=written(tmp_path, user=user))) == header


async def test_a_token_file_goes_before_a_token_and_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    path = written(tmp_path, user={"token": "t", "tokenFile": "token"})
    with pytest.raises(config.ConfigError, match=r"tokenFile .*token is missing or empty"):
        await config.from_kubeconfig(path=path)
    (tmp_path / "token").write_text("of-file")
    assert await shown(await config.from_kubeconfig(path=path)) == "Bearer of-file"


async def test_certificates_are_files_or_data_and_data_goes_first(tmp_path: Path) -> None:
    files = {"client-certificate": "c.pem", "client-key": "/k.pem"}
    found = await config.from_kubeconfig(path=written(tmp_path, {"certificate-authority": "ca.pem"}, user=files))
    told = (found.ca_file, found.client_cert_file, found.client_key_file)
    assert told == (str(tmp_path / "ca.pem"), str(tmp_path / "c.pem"), "/k.pem")
    data = {**files, "client-certificate-data": encoded("C"), "client-key-data": encoded("K")}
    ca = {"certificate-authority": "ca.pem", "certificate-authority-data": encoded("CA")}
    found = await config.from_kubeconfig(path=written(tmp_path, ca, user=data))
    assert (found.ca_data, found.client_cert_data, found.client_key_data) == (b"CA", b"C", b"K")
    assert (found.ca_file, found.client_cert_file, found.client_key_file) == ("", "", "")


async def test_a_cluster_says_how_it_is_reached_and_another_one_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, {"proxy-url": "http://p:1", "tls-server-name": "api.test"})
    found = await config.from_kubeconfig(path=path)
    assert (found.server, found.proxy, found.tls_server_name) == ("https://a:6443", "http://p:1", "api.test")
    assert (found.verify, found.namespace) == (True, "team")
    found = await config.from_kubeconfig(path=path, cluster="b")
    assert (found.server, found.verify, found.namespace) == ("https://b:6443", False, "team")


async def test_a_user_that_acts_as_another_one_says_so_with_each_request(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": {"why": ["x"]}}
    found = await config.from_kubeconfig(path=written(tmp_path, user=user))
    assert found.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-why", "x"),
    )


def test_of_several_files_the_first_that_names_something_counts(tmp_path: Path) -> None:
    first, second = written(tmp_path / "1", current=""), written(tmp_path / "2", {"server": "https://other:6443"})
    both = os.pathsep.join((str(tmp_path / "missing"), first, "", second))
    found = config.read(both)
    assert found.current == "at-a"
    assert found.chosen().cluster["server"] == "https://a:6443"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"context": "x"}, "no context 'x'; it has at-a"),
        ({"cluster": "x"}, "no cluster 'x'; it has a, b"),
        ({}, "no current-context is set; name one by --context"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, named: dict[str, str], told: str
) -> None:
    path = written(tmp_path, current="")
    with pytest.raises(BadKubeconfig) as caught:
        config.read(path).chosen(**named)
    assert str(caught.value) == f"kubeconfig {path}: {told}"


@pytest.mark.parametrize("key", ["certificate-authority-data", "server"])
async def test_what_can_not_be_of_a_cluster_is_refused(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, {key: "" if key == "server" else "!"})
    with pytest.raises(config.ConfigError, match="the cluster has no server" if key == "server" else "not base64"):
        await config.from_kubeconfig(path=path)

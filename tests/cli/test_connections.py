"""Which API server a command reaches: as kubectl would, where people run it; components only what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cli import connections
from cli.main import main
from cli.settings.common import Connection
from kube.client.config import ConfigError


def kubeconfig(path: Path, server: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
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


async def test_people_reach_what_they_name_then_what_kubeconfig_says_then_their_own_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(home / ".kube" / "config", "https://of-home:6443")
    assert (await connections.credentials_of_user(Connection())).server == "https://of-home:6443"
    monkeypatch.setenv("KUBECONFIG", kubeconfig(home / "environment", "https://of-environment:6443"))
    assert (await connections.credentials_of_user(Connection())).server == "https://of-environment:6443"
    named = Connection(kubeconfig=kubeconfig(home / "named", "https://named:6443"))
    assert (await connections.credentials_of_user(named)).server == "https://named:6443"
    assert (await connections.credentials_of_user(Connection(server="https://told:6443"))).server == "https://told:6443"


@pytest.mark.parametrize(("names", "is_found"), [("missing", False), ("missing:other", False), ("missing:there", True)])
async def test_a_kubeconfig_variable_has_to_name_a_file_that_is_there(
    names: str, is_found: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(home / "there", "https://there:6443")
    value = ":".join(str(home / name) for name in names.split(":"))
    monkeypatch.setenv("KUBECONFIG", value)
    if is_found:
        assert (await connections.credentials_of_user(Connection())).server == "https://there:6443"
        return
    with pytest.raises(ConfigError) as caught:
        await connections.credentials_of_user(Connection())
    assert str(caught.value) == f"KUBECONFIG={value}: there is no such file"


async def test_a_component_does_not_take_somebodys_kubeconfig(home: Path) -> None:
    kubeconfig(home / ".kube" / "config", "https://of-home:6443")
    with pytest.raises(ConfigError, match="not in a cluster"):
        await connections.credentials(Connection())


@pytest.mark.parametrize("command", ["inspect", "check", "check-kai", "clean-nodes", "upgrade-crds"])
@pytest.mark.usefixtures("home")
def test_without_any_cluster_a_command_says_how_to_name_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 2
    assert "name --kubeconfig, or set KUBECONFIG" in capsys.readouterr().err

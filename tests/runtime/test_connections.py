"""Which API server a component reaches: the one that it is told, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.client.config import ConfigError
from runtime import connections
from runtime.settings.common import Connection


async def test_a_component_does_not_take_somebodys_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="not in a cluster"):
        await connections.credentials(Connection())

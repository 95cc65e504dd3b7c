from __future__ import annotations

from tools import controlplane, etcdutlprogram, goprogram


def test_snapshots_are_restored_by_the_version_that_made_them() -> None:
    assert etcdutlprogram.version() == goprogram.required(controlplane.MODULE, "go.etcd.io/etcd/server/v3")

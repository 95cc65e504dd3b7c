from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.images.archive import ImageSettings, pack

SETTINGS = ImageSettings(name="docker.io/moorage/x:1", command=["/x"], user="10000:10000", env={"A": "b"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "x").write_text("program")
    (root / "bin" / "x").chmod(0o755)
    (root / "link").symlink_to("bin/x")
    return root


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr] # all are files


def blob(files: dict[str, bytes], descriptor: Any) -> bytes:
    found = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert hashlib.sha256(found).hexdigest() == descriptor["digest"].removeprefix("sha256:")
    assert len(found) == descriptor["size"]
    return found


def test_an_archive_leads_from_its_index_to_the_files(root: Path, tmp_path: Path) -> None:
    pack(root, SETTINGS, tmp_path / "image.tar")
    files = contents(tmp_path / "image.tar")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["annotations"] == {"io.containerd.image.name": "docker.io/moorage/x:1"}
    manifest = json.loads(blob(files, named))
    config = json.loads(blob(files, manifest["config"]))
    assert config["config"] == {"User": "10000:10000", "Entrypoint": ["/x"], "Env": ["A=b"]}
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(blob(files, layer))) as tar:
        found = {entry.name: (oct(entry.mode), entry.uid, entry.mtime) for entry in tar if entry.isreg()}
        assert tar.getmember("link").linkname == "bin/x"
    assert found == {"bin/x": ("0o755", 0, 0)}


def test_the_same_content_makes_the_same_bytes(root: Path, tmp_path: Path) -> None:
    pack(root, SETTINGS, tmp_path / "one.tar")
    os.utime(root / "bin" / "x", (1, 1))
    pack(root, SETTINGS, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()

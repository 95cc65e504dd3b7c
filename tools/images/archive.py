"""Images without a registry: folders packed as OCI archives, which ``ctr images import`` takes.

The same content makes the same bytes: names sorted, no times, everything owned by root, permissions that don't depend
on a umask. Layers are not compressed: then their digests don't depend on a compressor, either; who pushes them to a
registry compresses them. Source: OCI image layout 1.0.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import stat
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"
_NAME = "io.containerd.image.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """What an image says about its process; ``user`` is numeric, as runAsNonRoot wants it."""

    name: str
    command: Sequence[str]
    user: str = "65532:65532"
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    working_dir: str = ""
    other_names: Sequence[str] = ()

    def config(self) -> dict[str, Any]:
        """Return it as the image's configuration has it."""
        optional = {"Labels": dict(self.labels), "StopSignal": self.stop_signal, "WorkingDir": self.working_dir}
        return {
            "User": self.user,
            "Entrypoint": list(self.command),
            "Env": [f"{key}={value}" for key, value in self.env.items()],
            **{key: value for key, value in optional.items() if value},
        }


def pack(root: Path, settings: ImageSettings, archive: Path) -> None:
    """Write an archive with an image of one layer: all that is in ``root``. It replaces ``archive`` at once."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".layer-") as scratch:
        layer = Path(scratch) / "layer.tar"
        write_layer(root, layer)
        pack_layers([layer], settings, archive)


def pack_layers(layers: Sequence[Path], settings: ImageSettings, archive: Path) -> str:
    """Write an archive with an image of layers that ``write_layer`` wrote, the lowest first. Returns its digest."""
    blobs = {layer: _descriptor(layer, f"{_OCI}.layer.v1.tar") for layer in layers}
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": settings.config(),
            "rootfs": {"type": "layers", "diff_ids": [blob["digest"] for blob in blobs.values()]},
            "history": [{"created_by": "tools.node.images"} for _ in layers],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor(config, f"{_OCI}.config.v1+json"),
            "layers": list(blobs.values()),
        }
    )
    named = _descriptor(manifest, f"{_OCI}.manifest.v1+json")
    digest = str(named["digest"])
    names = [{**named, "annotations": {_NAME: name}} for name in (settings.name, *settings.other_names)]
    files: dict[str, bytes | Path] = {_place(blob["digest"]): layer for layer, blob in blobs.items()}
    files |= {_place(_digest(blob)): blob for blob in (config, manifest)}
    files["index.json"] = _json({"schemaVersion": 2, "manifests": names})
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    scratch = archive.with_suffix(".new")
    with tarfile.open(scratch, "w") as tar:
        for name, content in sorted(files.items()):
            _add(tar, name, content)
    scratch.replace(archive)
    return digest


def write_layer(root: Path, target: Path) -> None:
    """Write all that is in a folder as the tar archive of a layer."""
    with tarfile.open(target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_timeless)


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    entry = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    else:
        entry.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(entry, file)


def _timeless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if entry.mode & stat.S_ISVTX:
        entry.mode = 0o1777
    elif not entry.issym():
        entry.mode = 0o755 if entry.isdir() or entry.mode & stat.S_IXUSR else 0o644
    return entry


def _descriptor(blob: bytes | Path, media_type: str) -> dict[str, Any]:
    size = len(blob) if isinstance(blob, bytes) else blob.stat().st_size
    return {"mediaType": media_type, "digest": _digest(blob), "size": size}


def _digest(blob: bytes | Path) -> str:
    if isinstance(blob, bytes):
        return f"sha256:{hashlib.sha256(blob).hexdigest()}"
    with blob.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _place(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

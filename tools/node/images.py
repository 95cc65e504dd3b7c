"""Images without a registry: folders packed as OCI archives, which ``ctr images import`` takes.

The same content makes the same bytes: names sorted, no times, everything owned by root. Source: OCI image layout 1.0.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """What an image says about its process; ``user`` is numeric, as runAsNonRoot wants it."""

    name: str
    command: Sequence[str]
    user: str = "65532:65532"
    env: Mapping[str, str] = field(default_factory=dict)


def pack(root: Path, settings: ImageSettings, archive: Path) -> None:
    """Write an archive with an image of one layer: all that is in ``root``. It replaces ``archive`` at once."""
    layer = _layer(root)
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "User": settings.user,
                "Entrypoint": list(settings.command),
                "Env": [f"{key}={value}" for key, value in settings.env.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created_by": "tools.node.images"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor(config, f"{_OCI}.config.v1+json"),
            "layers": [_descriptor(layer, f"{_OCI}.layer.v1.tar")],
        }
    )
    named = _descriptor(manifest, f"{_OCI}.manifest.v1+json")
    named["annotations"] = {"io.containerd.image.name": settings.name}
    files = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (layer, config, manifest)}
    files["index.json"] = _json({"schemaVersion": 2, "manifests": [named]})
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    scratch = archive.with_suffix(".new")
    with tarfile.open(scratch, "w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    scratch.replace(archive)


def _layer(root: Path) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_timeless)
    return output.getvalue()


def _timeless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _descriptor(blob: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

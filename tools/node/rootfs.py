"""The images that a real node starts with: our reservation image (tools/images), and the pause program.

Every archive is made once for what it is made of, and kept in our cache (tools/controlplane.py).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.images import archive, build
from tools.images.archive import ImageSettings, pack
from tools.node.settings import PAUSE_IMAGE

#: What decides, beside the contents, how an archive comes out.
_RECIPES = (Path(__file__), Path(archive.__file__))


def reservation_archive() -> Path:
    """Return the archive of the reservation image; its Python serves as a user's image, too.

    Raises tools.node.debian.Unavailable when a package can't be had.
    """
    return build.archive("reservation")


def pause_archive() -> Path:
    """Return the archive of the image that holds pods' namespaces. Raises subprocess.CalledProcessError."""
    source = Path(__file__).with_name("pause.c")
    settings = ImageSettings(name=PAUSE_IMAGE, command=["/pause"])

    def compile_into(root: Path) -> None:
        flags = ("-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-s")
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", root / "pause", source], check=True)

    return _cached("pause", [source, *_RECIPES], compile_into, settings)


def _cached(name: str, sources: Sequence[Path], fill: Callable[[Path], None], settings: ImageSettings) -> Path:
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources))
    folder = build.default_store()
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{name}-{digest.hexdigest()[:12]}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            root = Path(scratch) / "root"
            root.mkdir(mode=0o755)
            fill(root)
            made = Path(scratch) / archive.name
            pack(root, settings, made)
            made.replace(archive)
    return archive

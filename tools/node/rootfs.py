"""The contents of our images: Debian's Python with Moorage's wheel in it, and the pause program.

Packages come through apt-get and are unpacked, not installed: no maintainer script runs, and nothing but a shared
library and a standard library is wanted of them. Every archive is made once for what it is made of, and kept in our
cache (tools/controlplane.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from tools.controlplane import cache_root
from tools.node.debian import apt
from tools.node.images import ImageSettings, pack
from tools.node.settings import PAUSE_IMAGE

_ROOT = Path(__file__).parents[2]
#: What decides, beside the contents, how an archive comes out.
_RECIPES = (Path(__file__), Path(__file__).with_name("images.py"))
#: The name that CRI gives to ``moorage/reservation:latest``, the binder's default.
RESERVATION_IMAGE = "docker.io/moorage/reservation:latest"
_PACKAGE = "python3"
#: What python3 depends on only for its installation, or for what no program of ours does.
_UNUSED = ("debconf", "dpkg", "gcc-", "install-info", "libgdbm", "libperl", "mailcap", "media-types", "mime-support")
_UNUSED_TOO = ("perl", "readline-common", "tar")
_PACKAGES_OF_OURS = ("wire", "reservation")
#: Where Debian's Python looks for what Debian did not install.
_SITE = "usr/local/lib/python3/dist-packages"
_MERGED = ("bin", "sbin", "lib", "lib64")


def reservation_archive() -> Path:
    """Return the archive of the reservation image; its Python serves as a user's image, too.

    Raises tools.node.debian.Unavailable when a package can't be had.
    """
    settings = ImageSettings(
        name=RESERVATION_IMAGE,
        command=["/usr/bin/python3", "-m", "reservation.main"],
        user="10000:10000",
        env={"PYTHONPATH": f"/{_SITE}", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    sources = sorted(path for package in _PACKAGES_OF_OURS for path in (_ROOT / package).rglob("*.py"))
    sources += [_ROOT / "pyproject.toml", _ROOT / "README.md", *_RECIPES]
    return _cached("reservation", sources, _fill, settings)


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
    folder = cache_root(os.environ) / "images"
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


def _fill(root: Path) -> None:
    """Unpack Debian's Python, install our wheel beside it, and compile all of it."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
        for package in _download(Path(scratch)):
            _unpack(package, root)
    for useless in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian"):
        shutil.rmtree(root / useless, ignore_errors=True)
    _install_wheel(root / _SITE)
    # A pod has no place for what an interpreter compiles, and compiling takes memory (reservation/main.py). By content:
    # the archive keeps no times.
    compiler = ["/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run(["chroot", root, *compiler, "/usr/lib", f"/{_SITE}"], check=True)


def _download(folder: Path) -> list[Path]:
    """Fetch Python and what it runs on, as files of packages. Raises Unavailable."""
    no = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    told = apt("apt-cache", "depends", "--recurse", *no, _PACKAGE).splitlines()
    # Lines that are neither indented nor <virtual> name a package.
    wanted = {line for line in told if line[:1].isalnum() and not line.startswith(_UNUSED + _UNUSED_TOO)}
    apt("apt-get", "download", "-q", *sorted(wanted), folder=folder)
    return sorted(folder.glob("*.deb"))


def _unpack(package: Path, root: Path) -> None:
    """Unpack one package; its /lib is our /usr/lib, as on every Debian of today."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reader:
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=reader.stdout, check=True)
    if reader.returncode:
        raise subprocess.CalledProcessError(reader.returncode, ["dpkg-deb", package.name])


def _install_wheel(target: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        raise FileNotFoundError("uv: `make` installs it (requirements/bootstrap.txt)")
    driver = f"nvidia-ml-py=={metadata.version('nvidia-ml-py')}"
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--target", target, str(_ROOT), driver], check=True)
    # The wheel has all of Moorage; this image is its smallest process only.
    kept = {*_PACKAGES_OF_OURS, "pynvml.py", *(path.name for path in target.glob("*.dist-info"))}
    for path in target.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

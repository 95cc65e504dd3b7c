"""The folders that make an image, packed as OCI archives, which ``ctr images import`` takes without a registry.

Packages are unpacked, not installed: no maintainer script runs, and nothing but an interpreter and libraries is wanted
of them. No root is needed. Pods have no place for what an interpreter compiles, and compiling takes memory
(reservation/main.py), so it is done here, by the interpreter that will read it.

The same content makes the same bytes: names sorted, no times, everything owned by root, permissions that don't depend
on a umask. Layers are not compressed: then their digests don't depend on a compressor, either. Source: OCI image
layout 1.0.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.images.containerfile import ROOT, UNUSED_FILES, UNUSED_OF_WHEELS, Recipe

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


_MERGED = ("bin", "sbin", "lib", "lib64")
_REQUIREMENTS = ROOT / "requirements" / "run.txt"
_PYTHON = Path("usr/bin/python3")
_SCRIPTS = Path("usr/local/bin")
#: Neither the folder of the script nor a home is looked at for modules.
_SCRIPT = """\
#!/usr/bin/python3 -sP
import sys

from {module} import {function}

sys.exit({function}())
"""
_ETC = {
    "passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
    "reservation:x:10000:10000:reservation:/:/sbin/nologin\n",
    "group": "root:x:0:\nnonroot:x:65532:\nreservation:x:10000:\n",
    # Kubernetes writes /etc/hosts, for hostAliases as well.
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Unloadable(Exception):
    """Raised when a file of an image lacks a library; names both."""


def python(root: Path, debs: Sequence[Path]) -> None:
    """Make the lowest layer: Debian's Python and what it runs on."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for deb in debs:
        _unpack(deb, root)
    _remove(root, UNUSED_FILES)
    for name, text in _ETC.items():
        (root / "etc" / name).write_text(text)
    for module, _ in _unloadable(root, root / _stdlib(root) / "lib-dynload"):
        module.unlink()
    _all_loadable(root, root)
    _compile(root, root, [_stdlib(root)])


def dependencies(root: Path, python_root: Path, recipe: Recipe) -> None:
    """Make the layer of others' wheels, exactly those of requirements/run.txt."""
    site = root / _site(python_root)
    site.mkdir(parents=True)
    pins = root.with_name(f"{root.name}.txt")
    pins.write_text(requirements(_REQUIREMENTS.read_text(), recipe.distributions))
    version = _stdlib(python_root).name.removeprefix("python")
    exactly = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", version)
    # Hashes are of what is downloaded: what lies unpacked in a cache may have been changed through a link since.
    _uv("pip", "install", "--no-cache", *exactly, "--target", str(site), "--requirement", str(pins))
    pins.unlink()
    (site / ".lock").unlink(missing_ok=True)
    _remove(site, UNUSED_OF_WHEELS)
    _all_loadable(python_root, site)
    _compile(python_root, root, [_site(python_root)])


def moorage(root: Path, python_root: Path, recipe: Recipe, wheel: Path) -> None:
    """Make the layer of our own wheel, with its console scripts."""
    site = root / _site(python_root)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site, [each for each in archive.namelist() if _is_kept(each, recipe.ours)])  # noqa: S202 - a zip file
        (listed,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(listed).decode())
    (root / _SCRIPTS).mkdir(parents=True)
    for name in recipe.scripts:
        module, _, function = scripts["console_scripts"][name].partition(":")
        script = root / _SCRIPTS / name
        script.write_text(_SCRIPT.format(module=module, function=function))
        script.chmod(0o755)
    _compile(python_root, root, [_site(python_root)])


def build_wheel(folder: Path) -> Path:
    """Build our wheel into a folder with the pinned build backend."""
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(layer: Path, root: Path) -> None:
    """Make the folder of a layer again. tarfile can't be told that it may, in the Python that Debian 12 builds with."""
    subprocess.run(["tar", "-x", "--same-permissions", "--no-same-owner", "-f", layer, "-C", root], check=True)


def requirements(pins: str, wanted: Sequence[str] | None) -> str:
    """Return those of the pins, with their hashes, that are wanted; None: all. Raises KeyError."""
    entries = {re.split(r"[=\s]", entry)[0]: entry for entry in re.split(r"(?m)^(?=\S)", pins) if entry}
    return "".join(entries[name] for name in (entries if wanted is None else wanted))


def _is_kept(name: str, ours: Sequence[str] | None) -> bool:
    """Whether a file of the wheel is wanted. In a part of it nothing tells of the rest: that would change the image."""
    licence = name.endswith(".dist-info/licenses/LICENSE")
    return ours is None or licence or name in ours or name.partition("/")[0] in ours


def _stdlib(python_root: Path) -> Path:
    """Where its standard library is, from the root of an image."""
    (found,) = (python_root / "usr" / "lib").glob("python3.*/os.py")
    return found.parent.relative_to(python_root)


def _site(python_root: Path) -> Path:
    """Where Debian's Python looks for what Debian did not install."""
    return Path("usr/local/lib") / _stdlib(python_root).name / "dist-packages"


def _unpack(deb: Path, root: Path) -> None:
    """Unpack one package, and keep what it says of itself where scanners look for it in images without dpkg."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as reader:
        # Its /lib is our /usr/lib, as on every Debian of today.
        flags = ("--keep-directory-symlink", "--no-same-owner", "--no-same-permissions")
        subprocess.run(["tar", "-x", *flags, "-C", root], stdin=reader.stdout, check=True)
    if reader.returncode:
        raise subprocess.CalledProcessError(reader.returncode, ["dpkg-deb", deb.name])
    status = root / "var" / "lib" / "dpkg" / "status.d"
    status.mkdir(parents=True, exist_ok=True)
    told = subprocess.run(["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True).stdout
    (status / re.findall(r"(?m)^Package: (\S+)$", told)[0]).write_text(told)


def _remove(root: Path, patterns: Sequence[str]) -> None:
    for path in [path for pattern in patterns for path in root.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _compile(python_root: Path, root: Path, folders: Sequence[Path]) -> None:
    """Compile by content, for an archive keeps no times; that it is up to date need not be checked at run time."""
    names = [str(root / folder) for folder in folders]
    compiler = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/")
    home = {"PYTHONHOME": str(python_root / "usr"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    subprocess.run([*_loader(python_root), python_root / _PYTHON, "-S", *compiler, *names], check=True, env=home)


def _loader(python_root: Path) -> list[str]:
    """The image's own loader, told to take libraries from the image: so neither root nor chroot(1) is needed."""
    (libc,) = (python_root / "usr" / "lib").glob("*/libc.so.6")
    (loader,) = libc.parent.glob("ld-linux-*.so.*")
    return [str(loader), "--inhibit-cache", "--library-path", str(libc.parent)]


def _all_loadable(python_root: Path, folder: Path) -> None:
    wrong = [f"{path.relative_to(folder)} lacks {', '.join(lacks)}" for path, lacks in _unloadable(python_root, folder)]
    if wrong:
        raise Unloadable("; ".join(wrong))


def _unloadable(python_root: Path, folder: Path) -> list[tuple[Path, list[str]]]:
    """Programs and libraries that need libraries which the image does not have, and those libraries."""
    inside = (str(python_root), str(folder))
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        # "libz.so.1 => /lib/.../libz.so.1 (0x...)", or "=> not found"; outside of the image is not found, too.
        told = subprocess.run([*_loader(python_root), "--list", path], capture_output=True, text=True, check=False)
        needs = re.findall(r"(?m)^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", told.stdout)
        if lacks := [name for name, where in needs if not where.startswith(inside)]:
            found.append((path, lacks))
    return found


def _uv(*arguments: str) -> None:
    """Run uv, which is beside our interpreter (requirements/bootstrap.txt)."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which("uv", path=beside)
    if program is None:
        raise FileNotFoundError("uv: requirements/bootstrap.txt has it")
    subprocess.run([program, *arguments, "--quiet"], check=True)

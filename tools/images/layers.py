"""The folders that make an image: unpacked packages, wheels, our wheel; all compiled.

Packages are unpacked, not installed: no maintainer script runs, and nothing but an interpreter and libraries is wanted
of them. No root is needed. Pods have no place for what an interpreter compiles, and compiling takes memory
(reservation/main.py), so it is done here, by the interpreter that will read it. Nothing but its content decides what
a layer is: no times, no owners, no names of this machine.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.images.containerfile import ROOT, UNUSED_FILES, UNUSED_OF_WHEELS, Recipe

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
        archive.extractall(site, [name for name in archive.namelist() if _is_kept(name, recipe.ours)])
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

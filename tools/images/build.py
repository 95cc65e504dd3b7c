"""OCI archives of our images, made here: no container engine, no registry, no root.

Layers and archives are made once for what they are made of, and kept in our cache (tools/controlplane.py); from equal
inputs they are equal to the last byte. Inputs: the recipe, these modules, Debian's packages (by hash), the pins of
requirements/, our sources, and the Containerfile, which says how the image is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.goprogram import cache_root
from tools.images import containerfile, layers
from tools.images.containerfile import LAYERS, RECIPES, ROOT, UNUSED_PACKAGES, Recipe
from tools.images.layers import ImageSettings, pack_layers, write_layer
from tools.node.debian import Unavailable, apt

_NO = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
#: 'http://...' python3-minimal_3.11.2-1+b1_amd64.deb 26312 SHA256:30f9...
_OFFER = re.compile(r"'\S+' (\S+\.deb) \d+ SHA256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Package:
    """A file of an archive of Debian's, and the hash that its index gives."""

    file: str
    sha256: str

    @property
    def name(self) -> str:
        """The package's name."""
        return self.file.partition("_")[0]

    @property
    def exactly(self) -> str:
        """As in ``python3-minimal=3.11.2-1+b1``; file names have an epoch's colon as %3a."""
        name, version, _ = self.file.split("_")
        return f"{name}={version.replace('%3a', ':')}"


def resolve(wanted: Sequence[str], store: Path, *, renew: bool = False) -> list[Package]:
    """Return packages with all that they depend on, but what is unused. Raises Unavailable."""
    known = _known(wanted, store)
    if known.exists() and not renew:
        return [Package(**entry) for entry in json.loads(known.read_text())]
    told = apt("apt-cache", "depends", "--recurse", *_NO, *wanted).splitlines()
    # Lines that are neither indented nor <virtual> name a package.
    names = {line for line in told if line[:1].isalnum() and not line.startswith(UNUSED_PACKAGES)}
    offers = _OFFER.findall(apt("apt-get", "download", "--print-uris", *sorted(names)))
    found = sorted((Package(*offer) for offer in offers), key=lambda package: package.file)
    if lacking := names - {package.name for package in found}:
        raise Unavailable(f"apt-get download: not offered: {', '.join(sorted(lacking))}")
    remember(found, wanted, store)
    return found


def remember(found: Sequence[Package], wanted: Sequence[str], store: Path) -> None:
    """Keep what was found; who looks sees all of it, or what was there before.

    Which versions there are changes with Debian's updates: what was found last is used again until it is ``renew``-ed
    (``make images`` does that; tests don't, and so need no index).
    """
    with tempfile.NamedTemporaryFile("w", dir=store, delete=False) as scratch:
        json.dump([asdict(package) for package in found], scratch, indent=1)
    Path(scratch.name).replace(_known(wanted, store))


def _known(wanted: Sequence[str], store: Path) -> Path:
    key = hashlib.sha256(repr((tuple(wanted), UNUSED_PACKAGES)).encode()).hexdigest()[:12]
    return store / f"packages-{key}.json"


def fetch(packages: Sequence[Package], store: Path) -> list[Path]:
    """Return the packages' files, in their order, from the store or from Debian. Raises Unavailable.

    apt checks what an index says against Debian's keys, and each file is checked against the index, so a package is
    what Debian says it is.
    """
    absent = [package for package in packages if not _place(store, package).exists()]
    if absent:
        with tempfile.TemporaryDirectory(dir=store, prefix=".debian-") as folder:
            apt("apt-get", "download", "-q", *(package.exactly for package in absent), folder=Path(folder))
            for package in absent:
                file = Path(folder) / package.file
                if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != package.sha256:
                    raise Unavailable(f"{package.file}: not what the index says; make images asks again")
                file.replace(_place(store, package))
    return [_place(store, package) for package in packages]


def _place(store: Path, package: Package) -> Path:
    return store / f"{package.sha256}.deb"


_HERE = Path(__file__).parent
_PROJECT = ROOT / "pyproject.toml"
_PINS = ROOT / "requirements" / "run.txt"
_UNUSED_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: ``key`` names what it is made of, ``fill`` makes it in an empty folder."""

    key: str
    fill: Callable[[Path], None]


def make(name: str, target: Path, *, store: Path | None = None, renew: bool = True) -> str:
    """Write the archive of an image, and return the image's digest. ``renew``: of what Debian offers now.

    Raises KeyError for an unknown name, tools.node.debian.Unavailable when a package can't be had,
    subprocess.CalledProcessError when a wheel can't.
    """
    with Builder(RECIPES[name], store or default_store(), renew=renew) as builder:
        return pack_layers(builder.tars(), image_settings(RECIPES[name]), target)


def archive(name: str, *, store: Path | None = None) -> Path:
    """Return the archive of an image from our cache, where it is made first if it isn't there. Raises as ``make`` does.

    Of Debian's packages it has those that were found last.
    """
    store = store or default_store()
    with Builder(RECIPES[name], store) as builder:
        key = _digest([repr(image_settings(RECIPES[name])).encode(), builder.key.encode()], _code("build.py"))
        made = store / f"{name}-{key}.tar"
        if made.exists():
            os.utime(made)
            return made
        with tempfile.TemporaryDirectory(dir=store, prefix=".build-") as scratch:
            fresh = Path(scratch) / made.name
            pack_layers(builder.tars(), image_settings(RECIPES[name]), fresh)
            fresh.replace(made)
    forget(store)
    return made


def forget(store: Path) -> None:
    """Remove what nobody has used for a week; packages and lists of them stay, they are small."""
    made = [path for pattern in ("*.tar", "*.layer") for path in store.glob(pattern)]
    newest = max((path.stat().st_mtime for path in made), default=0)
    for path in made:
        if path.stat().st_mtime < newest - _UNUSED_S:
            path.unlink(missing_ok=True)


def write_layers(name: str, folder: Path) -> None:
    """Write an image's layers as folders, for an engine to take (images/Containerfile). Raises as ``archive`` does."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store, Builder(RECIPES[name], Path(store), renew=True) as builder:
        for layer in LAYERS:
            target = folder / layer
            target.mkdir(mode=0o755)
            layers.unpack(builder.tar(layer), target)


def image_settings(recipe: Recipe) -> ImageSettings:
    """Return how an image is named and run. Raises tools.images.containerfile.Unreadable."""
    run = containerfile.read(recipe.containerfile)
    version = tomllib.loads(_PROJECT.read_text())["project"]["version"]
    if tuple(run.layers) != LAYERS:
        raise containerfile.Unreadable(f"{recipe.containerfile.name}: its layers are {run.layers}, not {LAYERS}")
    return ImageSettings(
        name=f"{recipe.image}:latest",
        other_names=(f"{recipe.image}:{version}",),
        command=run.command,
        user=run.user,
        env=run.env,
        labels=run.labels,
        stop_signal=run.stop_signal,
        working_dir=run.working_dir,
    )


def default_store() -> Path:
    """Where archives, layers and packages are kept."""
    return cache_root(os.environ) / "images"


class Builder:
    """Makes the layers of one image, those that the store does not have."""

    def __init__(self, recipe: Recipe, store: Path, *, renew: bool = False) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._store = store
        self._packages = resolve(recipe.packages, store, renew=renew)
        pins = layers.requirements(_PINS.read_text(), recipe.distributions)
        python = _digest([repr(self._packages).encode()], _code("layers.py", "containerfile.py"))
        dependencies = _digest([python.encode(), pins.encode()])
        moorage = _digest([python.encode(), repr((recipe.ours, recipe.scripts)).encode()], wheel_sources())
        self._layers = {
            "python": Layer(f"python-{python}", self._fill_python),
            "dependencies": Layer(
                f"dependencies-{dependencies}", lambda root: layers.dependencies(root, self._python_root(), recipe)
            ),
            "moorage": Layer(
                f"moorage-{moorage}", lambda root: layers.moorage(root, self._python_root(), recipe, self._wheel())
            ),
        }
        self._scratch = ExitStack()
        self._root: Path | None = None

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    @property
    def key(self) -> str:
        """Names what all layers are made of."""
        return _digest([layer.key.encode() for layer in self._layers.values()])

    def tars(self) -> list[Path]:
        """Return the archives of all layers, the lowest first."""
        return [self.tar(name) for name in LAYERS]

    def tar(self, name: str) -> Path:
        """Return the archive of a layer, made now if it isn't there."""
        layer = self._layers[name]
        made = self._store / f"{layer.key}.layer"
        if made.exists():
            os.utime(made)
        else:
            root = self._folder() / "root"
            root.mkdir(mode=0o755)
            layer.fill(root)
            write_layer(root, root.with_name("tar"))
            root.with_name("tar").replace(made)
            shutil.rmtree(root)
        return made

    def _fill_python(self, root: Path) -> None:
        layers.python(root, fetch(self._packages, self._store))

    def _python_root(self) -> Path:
        """The lowest layer as a folder: its interpreter compiles the other layers."""
        if self._root is None:
            self._root = self._folder()
            layers.unpack(self.tar("python"), self._root)
        return self._root

    def _wheel(self) -> Path:
        return layers.build_wheel(self._folder())

    def _folder(self) -> Path:
        return Path(self._scratch.enter_context(tempfile.TemporaryDirectory(dir=self._store, prefix=".build-")))


def wheel_sources() -> list[Path]:
    """Files that our wheel is made of."""
    wheel = tomllib.loads(_PROJECT.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = [
        path
        for folder in (*wheel["packages"], *wheel["force-include"])
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    ]
    kept = [path for path in found if "__pycache__" not in path.parts]
    return sorted([*kept, _PROJECT, ROOT / "README.md", ROOT / "LICENSE", ROOT / "requirements" / "build.txt"])


def _code(*names: str) -> list[Path]:
    return [*(_HERE / name for name in names), _HERE / "layers.py"]


def _digest(parts: Iterable[bytes], files: Iterable[Path] = ()) -> str:
    """Name inputs shortly; of files the content only counts, and in our own tree their place."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    for path in files:
        digest.update(str(path.relative_to(ROOT)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]

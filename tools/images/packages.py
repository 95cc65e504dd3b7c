"""Debian's packages as files: which ones, by content, and fetched once.

apt checks what an index says against Debian's keys, and we check each file against the index, so a package is what
Debian says it is. Which versions there are changes with Debian's updates: what was found last is used again until it is
``renew``-ed (``make images`` does that; tests don't, and so need no index).
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.images.recipe import UNUSED_PACKAGES
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
    """Keep what was found; who looks sees all of it, or what was there before."""
    with tempfile.NamedTemporaryFile("w", dir=store, delete=False) as scratch:
        json.dump([asdict(package) for package in found], scratch, indent=1)
    Path(scratch.name).replace(_known(wanted, store))


def _known(wanted: Sequence[str], store: Path) -> Path:
    key = hashlib.sha256(repr((tuple(wanted), UNUSED_PACKAGES)).encode()).hexdigest()[:12]
    return store / f"packages-{key}.json"


def fetch(packages: Sequence[Package], store: Path) -> list[Path]:
    """Return the packages' files, in their order, from the store or from Debian. Raises Unavailable."""
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

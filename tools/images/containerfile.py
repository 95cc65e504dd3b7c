"""What goes into each image, and how it is run, as its Containerfile says it.

Three layers, from what changes least to what changes most: Debian's Python (``python``), wheels of others
(``dependencies``), our own wheel (``moorage``). A release that changes our code only is a small pull. Of a
Containerfile the instructions of the last stage are read, in the forms that we use; anything else is refused, as an
engine would do it, and the image that we make ourselves would differ from the engine's.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("python", "dependencies", "moorage")
#: Python and its standard library: they depend on all else that is wanted of Debian.
_PYTHON = ("python3-minimal", "libpython3-stdlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``image``: its name without a tag, and ``containerfile`` how it is run.

    ``packages``: Debian's, with what they depend on. ``distributions``: which of the pins of requirements/run.txt,
    None: all. ``ours``: what of our wheel, as files and folders, None: all. ``scripts``: console scripts of the wheel.
    """

    name: str
    image: str
    containerfile: Path
    packages: Sequence[str]
    scripts: Sequence[str]
    distributions: Sequence[str] | None = None
    ours: Sequence[str] | None = None


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="components",
            image="localhost/moorage/moorage",
            containerfile=ROOT / "images" / "Containerfile",
            # NumPy is the one that is written in C++.
            packages=(*_PYTHON, "libstdc++6"),
            scripts=("moorage",),
        ),
        Recipe(
            name="reservation",
            image="localhost/moorage/reservation",
            containerfile=ROOT / "images" / "Containerfile.reservation",
            packages=_PYTHON,
            distributions=("nvidia-ml-py",),
            ours=("reservation", "wire/__init__.py", "wire/names.py"),
            scripts=("moorage-reservation",),
        ),
    )
}

#: Begins of names of packages that Python depends on for its installation, or for what no process of ours does:
#: databases, terminals, NIS, Kerberos. Modules that can't be loaded without them are left out, too.
UNUSED_PACKAGES = (
    *("debconf", "dpkg", "install-info", "mailcap", "media-types", "mime-support", "perl", "readline-common", "tar"),
    *("libacl", "libcom-err", "libdb5", "libgdbm", "libgssapi", "libk5crypto", "libkeyutils", "libkrb5", "libmd0"),
    *("libncurses", "libnsl", "libpcre", "libperl", "libreadline", "libselinux", "libsqlite3", "libtinfo", "libtirpc"),
    *("libuuid", "libzstd"),
)
#: Patterns of files that came with the packages. Licences stay (usr/share/doc/*/copyright): who passes an image on has
#: to pass them on.
UNUSED_FILES = (
    *("usr/share/doc/*/[!c]*", "usr/share/doc/*/changelog*", "usr/share/man", "usr/share/lintian", "usr/share/locale"),
    *("usr/share/applications", "usr/share/binfmts", "usr/share/pixmaps", "usr/share/python3", "usr/share/gcc"),
    *("usr/share/gdb", "usr/lib/python3.*/sitecustomize.py"),
    *("usr/lib/binfmt.d", "usr/lib/valgrind", "usr/lib/python3", "etc/ld.so.conf.d", "etc/python3*"),
    *(
        "usr/lib/*/gconv",
        "usr/lib/*/engines-*",
        "usr/lib/*/audit",
        "usr/lib/*/libmemusage.so",
        "usr/lib/*/libpcprofile.so",
    ),
    *("usr/lib/*/libthread_db.so.1", "usr/lib/*/libc_malloc_debug.so.0"),
    *("usr/bin/py3*", "usr/bin/pydoc*", "usr/bin/pygettext*", "usr/bin/pdb*", "usr/sbin/*"),
    *(
        f"usr/lib/python3.*/{name}"
        for name in ("__phello__", "config-3*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "turtle*")
    ),
    *(f"usr/lib/python3.*/lib-dynload/{name}" for name in ("_*test*", "xx*")),
)
#: The same of others' wheels: scripts, tests, what C programs are compiled with, and what got in by mistake. Records of
#: installation would list what is left out, and have hashes of scripts that name the builder's Python.
UNUSED_OF_WHEELS = (
    *("bin", "example.py", "pyproject.toml", "*.dist-info/RECORD"),
    *("*/tests", "*/*/tests", "numpy/*/include", "numpy/*/lib", "numpy/f2py", "numpy/include"),
)


class Unreadable(ValueError):
    """Raised for a line that is not in one of our forms; names the file, the line and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What an image says about its process. ``layers``: the folders that make it up, the lowest first."""

    user: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    working_dir: str = ""
    layers: Sequence[str] = ()


_Reader = Callable[[Run, str], Run]
_COPY = re.compile(r"--from=build /layers/([a-z]+) /")


def read(path: Path) -> Run:
    """Read the last stage of a Containerfile. Raises Unreadable."""
    return read_text(path.read_text(), name=path.name)


def read_text(text: str, *, name: str) -> Run:
    """Read the last stage; ``name`` is for messages. Raises Unreadable."""
    base, stage = "", list[tuple[str, str]]()
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, stage = rest.strip(), []
        else:
            stage.append((word, rest.strip()))
    if not stage or base != "scratch":
        raise Unreadable(f"{name}: the last stage has to be FROM scratch, and not empty")
    run = Run()
    for word, rest in stage:
        try:
            run = _READERS[word](run, rest)
        except (KeyError, ValueError):
            allowed = "; ".join(_FORMS)
            raise Unreadable(f"{name}: {word} {rest}: in the last stage there may be: {allowed}") from None
    return run


def _instructions(text: str) -> list[str]:
    """Lines without comments, continued ones as one."""
    lines = [line.strip() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line]


def _layer(run: Run, rest: str) -> Run:
    matched = _COPY.fullmatch(rest)
    if matched is None:
        raise ValueError(rest)
    return replace(run, layers=(*run.layers, matched[1]))


def _pairs(rest: str) -> dict[str, str]:
    if "$" in rest:
        raise ValueError(rest)
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(rest)
    return {key: value for key, _, value in pairs}


def _words(rest: str) -> list[str]:
    words = json.loads(rest)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(rest)
    return words


def _one(rest: str, pattern: str) -> str:
    if not re.fullmatch(pattern, rest):
        raise ValueError(rest)
    return rest


_READERS: Mapping[str, _Reader] = {
    "COPY": _layer,
    "LABEL": lambda run, rest: replace(run, labels={**run.labels, **_pairs(rest)}),
    "ENV": lambda run, rest: replace(run, env={**run.env, **_pairs(rest)}),
    "WORKDIR": lambda run, rest: replace(run, working_dir=_one(rest, r"/\S*")),
    "USER": lambda run, rest: replace(run, user=_one(rest, r"[1-9]\d*:[1-9]\d*")),
    "STOPSIGNAL": lambda run, rest: replace(run, stop_signal=_one(rest, r"SIG[A-Z]+")),
    "ENTRYPOINT": lambda run, rest: replace(run, command=_words(rest)),
}
_FORMS = (
    "COPY --from=build /layers/NAME /",
    'LABEL KEY="VALUE"',
    "ENV KEY=VALUE without variables",
    "WORKDIR /FOLDER",
    "USER UID:GID, numbers, not 0",
    "STOPSIGNAL SIGNAME",
    'ENTRYPOINT ["PROGRAM"]',
)

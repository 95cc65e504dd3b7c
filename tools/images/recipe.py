"""What goes into each image; its Containerfile says how it is run.

Three layers, from what changes least to what changes most: Debian's Python (``python``), wheels of others
(``dependencies``), our own wheel (``moorage``). A release that changes our code only is a small pull.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

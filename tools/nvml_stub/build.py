"""Compiles the NVML stub: ``python -m tools.nvml_stub.build FOLDER`` prints the folder for LD_LIBRARY_PATH.

What the stub can do stands at the head of ``nvml_stub.c``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("nvml_stub.c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")


class BuildFailed(Exception):
    """Raised when there is no C compiler, or it refused; the message says what to do."""


def build(cache: Path) -> Path:
    """Return a folder that holds the compiled library, below ``cache``; compiles only if it is not there yet.

    The folder is named by the source, so an edited stub is never mistaken for the old one. Safe when several
    processes build at once. Raises BuildFailed.
    """
    recipe = _SOURCE.read_bytes() + " ".join(_FLAGS).encode()
    folder = cache / f"nvml-stub-{hashlib.sha256(recipe).hexdigest()[:16]}"
    if not (folder / LIBRARY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            compiled = Path(scratch) / LIBRARY
            _compile(_compiler(), compiled)
            compiled.replace(folder / LIBRARY)
    return folder


def _compiler() -> str:
    wanted = [os.environ["CC"]] if os.environ.get("CC") else list(_COMPILERS)
    for name in wanted:
        if found := shutil.which(name):
            return found
    raise BuildFailed(
        f"no C compiler: looked for {', '.join(wanted)} on PATH. Install one (Debian: apt-get install gcc libc6-dev), "
        "or name one by the variable CC"
    )


def _compile(compiler: str, target: Path) -> None:
    command = [compiler, *_FLAGS, "-o", str(target), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def main(arguments: list[str]) -> int:
    """Build into the folder named by the only argument."""
    if len(arguments) != 1:
        print("usage: python -m tools.nvml_stub.build FOLDER", file=sys.stderr)
        return 2
    try:
        print(build(Path(arguments[0])))
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

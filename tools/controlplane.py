"""Where the programs of a real control plane come from: ``python -m tools.controlplane`` prints their folder.

With ``--kubelet`` it holds what a real node takes as well: kubelet and kube-proxy.

Each program is taken from the first source that has it:

1. ``$KUBEBUILDER_ASSETS``, as set for envtest. Its archives hold etcd and kube-apiserver only, so the rest still comes
   from below; the version is then the user's choice.
2. Our cache, ``${MOORAGE_CACHE:-~/.cache/moorage}/controlplane/KEY``. The key covers all that decides what a build
   makes, so a changed go.mod never meets an old program.
3. A build from Go modules (tools/controlplane/go.mod): five to nine minutes on two cores, once. go.sum is the proof of
   what was downloaded.

No package registry ships these programs built; released archives are not downloaded (CONTRIBUTING.md says why).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import goprogram
from tools.goprogram import BuildFailed, cache_root, is_program, locked, say

MODULE = Path(__file__).parent / "controlplane"

#: Program -> Go package, in build order: what kube-apiserver compiles, the next ones share.
PACKAGES: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
#: For tests with a real node (tools/node); nobody else waits for them.
KUBELET, KUBE_PROXY = "kubelet", "kube-proxy"
_ALL: Mapping[str, str] = {
    **PACKAGES,
    KUBELET: "k8s.io/kubernetes/cmd/kubelet",
    KUBE_PROXY: "k8s.io/kubernetes/cmd/kube-proxy",
}

_LABEL = "control plane"
#: Part of the key: raise it when the way of building changes.
_RECIPE = "1"


class ControlPlaneUnavailable(Exception):
    """Raised when a program is in no source and can't be built; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What ``ensure`` looks at, passed in: the environment, the module to build, and who builds."""

    environ: Mapping[str, str]
    which: Callable[[str], str | None]
    #: Builds one program: the go command, the module's folder, program, target file. Raises ControlPlaneUnavailable.
    build: Callable[[str, Path, str, Path], None]
    module: Path = MODULE

    @classmethod
    def of_this_machine(cls) -> Sources:
        """The process's environment and the Go toolchain on its PATH."""
        return cls(environ=os.environ, which=shutil.which, build=go_build)


def ensure(sources: Sources | None = None, *, wanted: Sequence[str] = tuple(PACKAGES)) -> Path:
    """Return a folder that holds every program of ``wanted``, building what no source has.

    Raises ControlPlaneUnavailable when something is missing and can't be built.
    """
    sources = sources or Sources.of_this_machine()
    assets = _assets(sources.environ)
    given = {program: assets / program for program in wanted if assets and is_program(assets / program)}
    if assets and len(given) == len(wanted):
        return assets
    folder = cache_root(sources.environ) / "controlplane" / key(sources.module)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", label=_LABEL):
        for number, program in enumerate(wanted, start=1):
            if program not in given and not is_program(folder / program):
                _build_into(folder, program, sources, f"{number} of {len(wanted)}")
        return _linked(folder, given) if given else folder


def key(module: Path = MODULE) -> str:
    """Name the cache folder of a module, by Kubernetes' version."""
    return goprogram.key(module, version(module), recipe=_RECIPE)


def version(module: Path = MODULE) -> str:
    """Return the version of Kubernetes that go.mod requires, as ``v1.36.3``."""
    found = re.search(r"^require k8s\.io/kubernetes (v\d+\.\d+\.\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{module / 'go.mod'}: no line 'require k8s.io/kubernetes vX.Y.Z'")
    return found[1]


def go_build(go: str, module: Path, program: str, target: Path, /) -> None:
    """Build one program, showing the time it takes. Raises ControlPlaneUnavailable."""
    try:
        goprogram.build(go, module, _ALL[program], target, ldflags=_ldflags(module), label=_LABEL)
    except BuildFailed as error:
        raise ControlPlaneUnavailable(_what_to_do(program, f"`go build` failed:\n  {error}")) from error


def _assets(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return None
    if not Path(named).is_dir():
        raise ControlPlaneUnavailable(f"KUBEBUILDER_ASSETS={named}: not a folder; correct it, or unset it")
    return Path(named).absolute()


def _build_into(folder: Path, program: str, sources: Sources, count: str) -> None:
    """Build beside the target and move it there at once, so that a broken-off build leaves nothing that looks done."""
    go = sources.which("go")
    if go is None:
        raise ControlPlaneUnavailable(_what_to_do(program, "there is no `go` on PATH"))
    say(f"control plane: {program} ({count}) is built from Go modules, once")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
        target = Path(scratch) / program
        sources.build(go, sources.module, program, target)
        target.replace(folder / program)


def _linked(folder: Path, given: Mapping[str, Path]) -> Path:
    """Return a folder of links: the given programs, and the cached ones for the rest, there or not."""
    origin = hashlib.sha256("\n".join(map(str, given.values())).encode()).hexdigest()[:12]
    mixed = folder / f"with-assets-{origin}"
    mixed.mkdir(exist_ok=True)
    for program in _ALL:
        link = mixed / program
        link.unlink(missing_ok=True)
        link.symlink_to(given.get(program, folder / program))
    return mixed


def _ldflags(module: Path) -> str:
    """Strip, and stamp the version: clients and feature gates go by what the server says it is."""
    major, minor, _ = version(module).removeprefix("v").split(".")
    stamp = {"gitVersion": version(module), "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())])


def _what_to_do(program: str, why: str) -> str:
    return (
        f"{program} of the real control plane can't be had: {why}\n"
        "Do one of these:\n"
        "  - install Go 1.26 or newer (any Go from 1.21 on fetches it) and let it reach a Go module proxy;\n"
        f"  - set KUBEBUILDER_ASSETS to a folder with {', '.join(PACKAGES)};\n"
        "  - set MOORAGE_CACHE to a cache folder from another machine of the same kind;\n"
        "  - run `make test`, which leaves the tests of the real control plane out."
    )


def main(arguments: Sequence[str]) -> int:
    """Print the folder, or say what to do. ``--kubelet``: with what a real node takes."""
    if unknown := set(arguments) - {"--kubelet"}:
        print(f"{', '.join(sorted(unknown))}: --kubelet or nothing is allowed", file=sys.stderr)
        return 2
    try:
        print(ensure(wanted=tuple(_ALL if arguments else PACKAGES)))
    except ControlPlaneUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

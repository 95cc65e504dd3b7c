from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools.controlplane import PACKAGES, ControlPlaneUnavailable, Sources, ensure, key

GO_MOD = "module example.test/control-plane\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.3 // indirect\n"
ALL = set(PACKAGES)


@dataclass
class Workshop:
    """A machine in a folder: a module, a cache, and a builder that writes down what it was asked for."""

    root: Path
    has_go: bool = True
    fails_at: str = ""
    built: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.module.mkdir()
        (self.module / "go.mod").write_text(GO_MOD)
        (self.module / "go.sum").write_text("")

    @property
    def module(self) -> Path:
        return self.root / "module"

    def sources(self, environ: Mapping[str, str] | None = None) -> Sources:
        return Sources(
            environ={"MOORAGE_CACHE": str(self.root / "cache"), **(environ or {})},
            which=self.which,
            build=self.build,
            module=self.module,
        )

    def which(self, command: str) -> str | None:
        return "/somewhere/go" if command == "go" and self.has_go else None

    def build(self, go: str, module: Path, program: str, target: Path) -> None:
        assert (go, module) == ("/somewhere/go", self.module)
        self.built.append(program)
        write_program(target, "half" if program == self.fails_at else f"built {program}")
        if program == self.fails_at:
            raise ControlPlaneUnavailable(program)

    def assets(self, *programs: str) -> dict[str, str]:
        folder = self.root / "assets"
        folder.mkdir()
        for program in programs:
            write_program(folder / program, f"asset {program}")
        return {"KUBEBUILDER_ASSETS": str(folder)}


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def contents(folder: Path) -> dict[str, str]:
    return {program: (folder / program).read_text() for program in PACKAGES}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_assets_given_for_one_run_do_not_get_into_the_cache_of_the_next(workshop: Workshop) -> None:
    ensure(workshop.sources(workshop.assets("etcd", "kube-apiserver")))
    assert contents(ensure(workshop.sources())) == {program: f"built {program}" for program in PACKAGES}


def test_a_build_that_breaks_off_leaves_what_was_done_and_nothing_half_done(workshop: Workshop) -> None:
    workshop.fails_at = "kube-controller-manager"
    with pytest.raises(ControlPlaneUnavailable):
        ensure(workshop.sources())
    left = {path.name for path in (workshop.root / "cache" / "controlplane" / key(workshop.module)).iterdir()}
    assert left == {".lock", "etcd", "kube-apiserver"}
    workshop.fails_at = ""
    workshop.built.clear()
    assert set(contents(ensure(workshop.sources()))) == ALL
    assert workshop.built == ["kube-controller-manager", "kube-scheduler"]


def test_without_go_the_refusal_says_what_is_missing_and_what_to_do(workshop: Workshop) -> None:
    workshop.has_go = False
    with pytest.raises(ControlPlaneUnavailable) as refusal:
        ensure(workshop.sources())
    for words in ("etcd", "no `go` on PATH", "install Go", "KUBEBUILDER_ASSETS", "MOORAGE_CACHE", "make test"):
        assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("go.mod", GO_MOD.replace("v1.36.3", "v1.36.4")),
        ("go.mod", GO_MOD + "replace k8s.io/api => k8s.io/api v0.36.3\n"),
        ("go.sum", "k8s.io/kubernetes v1.36.3 h1:other=\n"),
    ],
)
def test_the_key_changes_with_what_decides_the_build(workshop: Workshop, file: str, text: str) -> None:
    before = key(workshop.module)
    (workshop.module / file).write_text(text)
    assert key(workshop.module) != before


def test_our_own_module_names_every_program_as_a_tool() -> None:
    text = (Path(__file__).parents[2] / "tools" / "controlplane" / "go.mod").read_text()
    assert [package for package in PACKAGES.values() if f"\t{package}\n" not in text] == []

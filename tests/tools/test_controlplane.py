from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools.controlplane import (
    KUBELET,
    PACKAGES,
    ControlPlaneUnavailable,
    Sources,
    ensure,
    go_build,
    key,
    version,
)
from tools.goprogram import cache_root

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


def test_a_kubelet_is_built_only_for_who_wants_one(workshop: Workshop) -> None:
    folder = ensure(workshop.sources())
    assert not (folder / KUBELET).exists()
    assert ensure(workshop.sources(), wanted=(KUBELET,)) == folder
    assert (folder / KUBELET).read_text() == "built kubelet"
    assert workshop.built == [*PACKAGES, KUBELET]


def test_what_no_source_has_is_built_once_and_then_taken_from_the_cache(workshop: Workshop) -> None:
    first = ensure(workshop.sources())
    second = ensure(workshop.sources())
    assert first == second
    assert contents(first) == {program: f"built {program}" for program in PACKAGES}
    assert workshop.built == list(PACKAGES)


def test_named_assets_that_are_complete_are_used_as_they_are(workshop: Workshop) -> None:
    folder = ensure(workshop.sources(workshop.assets(*PACKAGES)))
    assert folder == workshop.root / "assets"
    assert workshop.built == []


def test_an_envtest_archive_is_completed_by_building_only_what_it_lacks(workshop: Workshop) -> None:
    folder = ensure(workshop.sources(workshop.assets("etcd", "kube-apiserver", "kubectl")))
    assert workshop.built == ["kube-controller-manager", "kube-scheduler"]
    assert contents(folder) == {
        "etcd": "asset etcd",
        "kube-apiserver": "asset kube-apiserver",
        "kube-controller-manager": "built kube-controller-manager",
        "kube-scheduler": "built kube-scheduler",
    }


def test_assets_given_for_one_run_do_not_get_into_the_cache_of_the_next(workshop: Workshop) -> None:
    ensure(workshop.sources(workshop.assets("etcd", "kube-apiserver")))
    assert contents(ensure(workshop.sources())) == {program: f"built {program}" for program in PACKAGES}


def test_an_asset_that_can_not_be_run_is_not_taken(workshop: Workshop) -> None:
    environ = workshop.assets("etcd")
    (workshop.root / "assets" / "etcd").chmod(0o644)
    assert contents(ensure(workshop.sources(environ)))["etcd"] == "built etcd"


def test_an_asset_folder_that_is_not_there_is_refused_by_its_name(workshop: Workshop) -> None:
    with pytest.raises(ControlPlaneUnavailable, match=r"KUBEBUILDER_ASSETS=/not/there: not a folder"):
        ensure(workshop.sources({"KUBEBUILDER_ASSETS": "/not/there"}))


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


def test_without_go_a_filled_cache_is_enough(workshop: Workshop) -> None:
    ensure(workshop.sources())
    workshop.has_go = False
    assert set(contents(ensure(workshop.sources()))) == ALL


def test_a_failing_go_build_is_told_with_the_end_of_its_output(workshop: Workshop) -> None:
    go = workshop.root / "go"
    write_program(go, "#!/bin/sh\necho no space left on device\nexit 1\n")
    with pytest.raises(ControlPlaneUnavailable, match=r"(?s)etcd .*`go build` failed:\n  no space left on device"):
        go_build(str(go), workshop.module, "etcd", workshop.root / "etcd")


def test_the_go_command_is_asked_for_the_package_with_the_version_stamped(workshop: Workshop) -> None:
    go, asked = workshop.root / "go", workshop.root / "asked"
    write_program(go, f'#!/bin/sh\nprintf "%s\\n" "$PWD" "$CGO_ENABLED" "$@" > {asked}\n')
    go_build(str(go), workshop.module, "kube-scheduler", workshop.root / "kube-scheduler")
    words = asked.read_text().splitlines()
    assert words[:3] == [str(workshop.module), "0", "build"]
    assert words[-3:] == ["-o", str(workshop.root / "kube-scheduler"), "k8s.io/kubernetes/cmd/kube-scheduler"]
    stamp = "-X k8s.io/component-base/version."
    assert words[words.index("-ldflags") + 1] == (
        f"-s -w {stamp}gitVersion=v1.36.3 {stamp}gitMajor=1 {stamp}gitMinor=36"
    )


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


def test_the_key_begins_with_the_version_that_go_mod_names(workshop: Workshop) -> None:
    assert key(workshop.module).startswith("v1.36.3-")
    assert key(workshop.module) == key(workshop.module)


def test_a_go_mod_without_kubernetes_is_refused(workshop: Workshop) -> None:
    (workshop.module / "go.mod").write_text("module example.test/empty\n")
    with pytest.raises(ValueError, match=r"go\.mod: no line 'require k8s\.io/kubernetes"):
        version(workshop.module)


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"MOORAGE_CACHE": "/fast/disk", "HOME": "/home/somebody"}, "/fast/disk"),
        ({"MOORAGE_CACHE": "", "HOME": "/home/somebody"}, "/home/somebody/.cache/moorage"),
        ({"HOME": "/home/somebody"}, "/home/somebody/.cache/moorage"),
    ],
)
def test_the_cache_lies_where_the_environment_says(environ: dict[str, str], root: str) -> None:
    assert cache_root(environ) == Path(root)


def test_our_own_module_names_every_program_as_a_tool() -> None:
    text = (Path(__file__).parents[2] / "tools" / "controlplane" / "go.mod").read_text()
    assert [package for package in PACKAGES.values() if f"\t{package}\n" not in text] == []

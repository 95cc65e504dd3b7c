"""What a user installs: the wheel in an empty environment, used outside of a checkout, under each supported Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.version import VERSION
from tests.whole import IS_WHOLE
from tools.images import layers
from tools.images.containerfile import ROOT

pytestmark = pytest.mark.thorough

UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
#: Those that this machine has are tried: in make test-all the oldest and the newest.
SUPPORTED = ("3.11", "3.12", "3.13") if IS_WHOLE else ("3.11", "3.13")
POD = ROOT / "examples" / "01-fraction-pair.yaml"


def _python(version: str) -> str:
    """The interpreter of a version: our own, on the path, or one of pyenv's."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(versions.glob(f"{version}.*/bin/python{version}")))]
    if sys.version.startswith(f"{version}."):
        return sys.executable
    return next((each for each in found if each and _runs(each)), "")


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


PYTHONS = {version: python for version in SUPPORTED if (python := _python(version))}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layers.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=PYTHONS)
def environment(wheel: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and its pinned dependencies, and nothing else."""
    place = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([UV, "venv", "--quiet", "--python", PYTHONS[request.param], place], check=True)
    install = [UV, "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements" / "run.txt"], check=True)
    subprocess.run([*install, "--no-deps", wheel], check=True)
    return place


def _run(environment: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [environment / "bin" / "moorage", *words], cwd=folder, capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_run_in_any_folder(environment: Path, tmp_path: Path) -> None:
    assert "default/too-large" in _run(environment, tmp_path, "demo")
    assert "invariants held" in _run(environment, tmp_path, "simulate", "--nodes", "1x2x24GiB", str(POD))
    assert _run(environment, tmp_path, "version") == f"moorage {VERSION}\n"
    assert "dialect   kai" in _run(environment, tmp_path, "translate", str(POD))
    assert "2 pods: 0 errors" in _run(environment, tmp_path, "lint", str(POD))


def test_programs_that_kubectl_and_pods_look_for_are_there(environment: Path) -> None:
    programs = {path.name for path in (environment / "bin").iterdir()}
    assert {"moorage", "moorage-reservation", "kubectl-moorage", "kubectl_complete-moorage"} <= programs


def test_nothing_of_tests_and_tools_is_installed(environment: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    assert {path.name for path in packages.iterdir()}.isdisjoint({"tests", "tools", "bench", "verification", "docs"})

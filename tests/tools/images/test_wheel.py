from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.images import build, layers
from tools.images.containerfile import ROOT

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(layers.build_wheel(tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def of_ours(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_a_wheel_has_everything_of_its_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    sources = {str(path.relative_to(ROOT)) for path in build.wheel_sources() if len(path.relative_to(ROOT).parts) > 1}
    placed = {f"cli/{name}" if name.startswith("examples/") else name for name in sources}
    assert of_ours(wheel) == placed - {"requirements/build.txt"}
    assert {name.partition("/")[0] for name in of_ours(wheel)}.isdisjoint(
        {"tests", "tools", "bench", "docs", "verification", "examples"}
    )


def test_what_is_installed_in_a_cluster_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    roles = {f"{name}/rbac.yaml" for name in ("scheduler", "binder", "admission", "reservation", "cli")}
    definitions = {str(path.relative_to(ROOT)) for path in (ROOT / "wire" / "crds" / "yaml").glob("*.yaml")}
    assert len(definitions) > 3
    assert roles | definitions | {"admission/policies.py", "admission/manifests.py"} <= of_ours(wheel)


def test_the_same_sources_make_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    assert wheel.filename is not None
    assert layers.build_wheel(tmp_path).read_bytes() == Path(wheel.filename).read_bytes()

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("run.txt", "dev.txt", "bootstrap.txt", "build.txt")


def text(file: str) -> str:
    return (ROOT / "requirements" / file).read_text()


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text(file), re.MULTILINE))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("file", FILES)
def test_no_address_of_an_index_is_in_the_pins(file: str) -> None:
    assert "://" not in text(file)
    assert re.findall(r"^--(?!hash)\S+", text(file), re.MULTILINE) == []


@pytest.mark.parametrize("file", FILES)
def test_every_pin_has_hashes(file: str) -> None:
    entries = re.split(r"(?m)^(?=\S)", text(file))
    assert [entry for entry in entries if entry and "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("file", ["run.txt", "build.txt"])
def test_tests_run_on_the_versions_that_are_shipped_and_built_with(file: str) -> None:
    assert pins(file).items() <= pins("dev.txt").items()


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    wanted = {
        "run.txt": project["project"]["dependencies"],
        "dev.txt": [*groups["lint"], *groups["test"]],
        "bootstrap.txt": groups["bootstrap"],
        "build.txt": groups["build"],
    }
    missing = {
        (file, requirement)
        for file, requirements in wanted.items()
        for requirement in requirements
        if normal(re.split(r"[<>=!~;\[ ]", requirement)[0]) not in pins(file)
    }
    assert missing == set()

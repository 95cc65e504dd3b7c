"""Which packages and which files; that Debian gives them is seen in tests/node/test_images.py."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tools.images import build
from tools.images.build import Package

pytestmark = pytest.mark.thorough


def test_packages_that_were_found_are_used_again_without_an_index(tmp_path: Path) -> None:
    found = [Package("a_1_amd64.deb", "00"), Package("b_2%3a1_all.deb", "11")]
    build.remember(found, ["a"], tmp_path)
    assert build.resolve(["a"], tmp_path) == found


def test_a_package_that_is_in_the_store_is_not_fetched(tmp_path: Path) -> None:
    content = b"package"
    there = Package("a_1_amd64.deb", hashlib.sha256(content).hexdigest())
    (tmp_path / f"{there.sha256}.deb").write_bytes(content)
    assert build.fetch([there], tmp_path) == [tmp_path / f"{there.sha256}.deb"]


@pytest.mark.parametrize(
    ("file", "name", "exactly"),
    [
        ("libc6_2.36-9+deb12u14_amd64.deb", "libc6", "libc6=2.36-9+deb12u14"),
        ("zlib1g_1%3a1.2.13.dfsg-1_amd64.deb", "zlib1g", "zlib1g=1:1.2.13.dfsg-1"),
    ],
)
def test_the_version_that_was_found_is_the_one_that_is_fetched(file: str, name: str, exactly: str) -> None:
    assert (Package(file, "00").name, Package(file, "00").exactly) == (name, exactly)

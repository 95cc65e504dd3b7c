"""What a node's runtime handler does with what containerd tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.node.settings import nvidia_runtime


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--root", "/r", "create", "--bundle", "/b", "c1"], "devices /bin/echo --root /r create --bundle /b c1"),
        (["--root", "/r", "start", "c1"], "--root /r start c1"),
        (["--root", "/run/create", "kill", "--all", "create-1", "9"], "--root /run/create kill --all create-1 9"),
        (["features"], "features"),
    ],
    ids=["a container is created", "it starts", "a word in a name is no command", "a question"],
)
def test_only_a_container_that_is_created_is_given_devices(arguments: list[str], expected: str, tmp_path: Path) -> None:
    script = tmp_path / "handler"
    script.write_text(nvidia_runtime(create="exec /bin/echo devices", runc="/bin/echo"))
    script.chmod(0o755)
    said = subprocess.run([script, *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == f"{expected}\n"

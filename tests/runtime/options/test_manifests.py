from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from cli.main import main
from runtime.options import manifests
from runtime.text import BadInput

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {gpu-fraction: "0.5"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main, image: x}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """a.yaml, and deeper b.yml and c.json beside what is no manifest."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.yaml").write_text(POD.replace("NAME", "a"))
    (tmp_path / "deep" / "b.yml").write_text(POD.replace("NAME", "b"))
    (tmp_path / "deep" / "er" / "c.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}, "spec": {"containers": [{}]}})
    )
    (tmp_path / "deep" / "notes.txt").write_text("no manifest")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["{0}/a.yaml"], ["{0}/a.yaml"]),
        (["-f", "{0}/a.yaml"], ["{0}/a.yaml"]),
        (["x", "-f", "y", "--filename=z"], ["x", "y", "z"]),
        (["-"], ["-"]),
        (["-f", "-"], ["-"]),
        (["{0}"], ["{0}"]),
        (["-R", "{0}"], ["{0}/a.yaml", "{0}/deep/b.yml", "{0}/deep/er/c.json"]),
        (["-R", "-f", "{0}/deep", "-"], ["-", "{0}/deep/b.yml", "{0}/deep/er/c.json"]),
    ],
)
def test_files_are_positional_or_named_as_in_kubectl(words: list[str], expected: list[str], folder: Path) -> None:
    parser = argparse.ArgumentParser()
    manifests.add_arguments(parser)
    arguments = parser.parse_args([word.format(folder) for word in words])
    assert manifests.named(arguments) == [name.format(folder) for name in expected]


def test_a_command_line_without_files_says_how_to_name_them() -> None:
    parser = argparse.ArgumentParser()
    manifests.add_arguments(parser)
    with pytest.raises(BadInput, match="no manifests given; name files or folders, or - for stdin: FILE or -f FILE"):
        manifests.named(parser.parse_args([]))


def test_a_folder_is_read_without_its_folders_unless_recursive(folder: Path) -> None:
    assert manifests.expanded(str(folder)) == [folder / "a.yaml"]
    (folder / "a.yaml").unlink()
    with pytest.raises(BadInput, match=r"a folder without manifests .*; -R reads folders within it"):
        manifests.expanded(str(folder))


@pytest.mark.parametrize("command", [["lint"], ["translate"], ["simulate", "--nodes", "1x1x24GiB"]])
def test_commands_that_read_manifests_take_them_as_kubectl_does(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deep" / "er" / "c.json").unlink()
    assert main([*command, "-R", "-f", str(folder)]) == 0
    told = capsys.readouterr()
    assert "2 pods" in told.out or all(f"default/{name}" in told.out for name in "ab")
    monkeypatch.setattr("sys.stdin", io.StringIO(POD.replace("NAME", "typed")))
    assert main([*command, "-f", "-"]) == 0
    told = capsys.readouterr()
    assert "1 pod:" in told.out or "default/typed" in told.out
    assert main(command) == 2
    assert "no manifests given" in capsys.readouterr().err

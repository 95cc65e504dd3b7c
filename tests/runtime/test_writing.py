"""What is printed on terminals and into files that have not all characters. What is written there is what it was."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import plugin_parser
from cli.main import main
from runtime.output import lets_all_through, write
from tests.quick import few
from ui.commands import inspect
from ui.inspect.survey import Found, survey
from wire import names
from wire.core import Container, ObjectMeta, Pod, PodSpec

WORDS = "Überraschung …: 中文 \U0001f600"
MANIFEST = f"""
apiVersion: v1
kind: Pod
metadata: {{name: p, annotations: {{gpu-fraction: "0.5{WORDS}"}}}}
spec: {{containers: [{{name: main, image: i}}]}}
"""


class Terminal:
    """A stdout that has some characters only."""

    def __init__(self, encoding: str) -> None:
        self._bytes = io.BytesIO()
        self._encoding = encoding
        self.stream = io.TextIOWrapper(self._bytes, encoding=encoding)

    def read(self) -> str:
        self.stream.flush()
        return self._bytes.getvalue().decode(self._encoding)


@pytest.fixture(params=["latin-1", "ascii", "utf-8"])
def terminal(request: pytest.FixtureRequest) -> Terminal:
    return Terminal(request.param)


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "pod.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    return str(path)


def test_characters_that_are_missing_are_written_in_ascii(terminal: Terminal) -> None:
    with redirect_stdout(terminal.stream):
        lets_all_through()
        print("█▒░… ü", end="")
    expected = {"utf-8": "█▒░… ü", "latin-1": "#%.~ ü", "ascii": "#%.~ \\u00fc"}
    assert terminal.read() == expected[terminal.stream.encoding]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_stay_what_they_were(output: str, terminal: Terminal) -> None:
    said = {"words": WORDS, WORDS: [WORDS]}
    with redirect_stdout(terminal.stream):
        lets_all_through()
        write(said, output)
    read: Any = json.loads(terminal.read()) if output == "json" else yaml.safe_load(terminal.read())
    assert read == said


@pytest.mark.parametrize("command", [["lint"], ["lint", "-o", "json"], ["translate"], ["translate", "-o", "yaml"]])
def test_what_manifests_say_is_told(command: list[str], terminal: Terminal, manifest: str) -> None:
    with redirect_stdout(terminal.stream):
        assert main([*command, manifest]) == 1
    assert "rraschung" in terminal.read()


@pytest.mark.parametrize("form", [[], ["-o", "wide"], ["-o", "json"], ["-o", "yaml"]])
def test_what_clusters_say_is_told(form: list[str], terminal: Terminal) -> None:
    meta = ObjectMeta(namespace="n", name="p", uid="u", annotations={names.GPU_FRACTION: WORDS})
    spec = PodSpec(scheduler_name=names.SCHEDULER_NAME, containers=[Container(name="main")])
    arguments = plugin_parser().parse_args(["inspect", "pod", *form])
    seen = survey(Found(pods=[Pod(metadata=meta, spec=spec)]))
    with redirect_stdout(terminal.stream):
        lets_all_through()
        inspect.show(seen, arguments)
    assert "rraschung" in terminal.read()


@pytest.mark.parametrize(
    "command",
    few(
        [
            ["simulate", "--nodes", "1x2x24GiB", "examples/01-fraction-pair.yaml"],
            ["top", "--simulate", "--nodes", "1x2x24GiB", "--once"],
        ],
        2,
    ),
    ids=lambda command: command[0],
)
def test_what_is_drawn_is_drawn(command: list[str], terminal: Terminal) -> None:
    with redirect_stdout(terminal.stream):
        assert main(command) == 0
    said = terminal.read()
    assert "node-0" in said
    assert "\\u" not in said

"""Helm's commands on the pages: the chart takes each, and one that must be refused is refused as its page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.docs.blocks import blocks, is_as_told
from tests.docs.pages import PAGES, ROOT, code_words, name
from tests.helm.chart import Refused, helm

pytestmark = pytest.mark.helm

#: What ``helm template`` does not know, as it has no cluster.
_OF_A_CLUSTER = {"--create-namespace"}
#: What an upgrade has from the installation before it.
_REGISTRY = "--set global.registry=registry.example.com/team"


def _commands() -> Iterator[tuple[str, str, str]]:
    """Yield (page, command, what it prints) of all that renders the chart."""
    for page in PAGES:
        for block in blocks(page):
            for command in block.commands:
                for line in command.line.replace("\\\n", " ").splitlines():
                    if re.match(r"helm (install|upgrade|template) ", line):
                        yield name(page), line, command.printed or ""
        for word in code_words(page.read_text(encoding="utf-8")):
            if re.match(r"--set \S+=\S+$", word):
                yield name(page), f"helm template moorage helm/moorage -n kai-scheduler {_REGISTRY} {word}", ""


COMMANDS = list(_commands())


@pytest.mark.parametrize(
    ("page", "command", "printed"), COMMANDS, ids=[f"{page}: {line}" for page, line, _ in COMMANDS]
)
def test_the_chart_takes_what_a_page_gives_it(
    page: str, command: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    command = command.replace("--reuse-values", _REGISTRY)
    words = [word for word in shlex.split(command, comments=True)[2:] if word not in _OF_A_CLUSTER]
    if not printed.startswith("Error: "):
        assert "kind: Deployment" in helm("template", *words)
        return
    with pytest.raises(Refused) as refused:
        helm("template", *words)
    assert is_as_told(printed, str(refused.value)), page


def test_there_are_such_commands() -> None:
    assert {page for page, _, _ in COMMANDS} >= {"README.md", "docs/install.md"}
    assert any(printed.startswith("Error: ") for _, _, printed in COMMANDS)

"""docs/operate.md quotes what pods are told: the words are those of the code."""

from __future__ import annotations

import re

from scheduler.conditions.messages import KIND_WORDS
from tests.docs.pages import ROOT, code_words

#: Where conditions get their words; the second one says why a claim was not bound.
_SOURCES = ("conditions/messages.py", "commit/claim_binding.py")
#: Kubernetes' own word.
_OF_KUBERNETES = {"SchedulingGated", "spec.schedulerName", "kai-scheduler"}
#: What the page puts in the place of what differs.
_PLACES = re.compile(r"\.\.\.|\b(?:N|M|NAME)\b")


def test_what_a_waiting_pod_says_is_said_so() -> None:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    table = page.partition("## A pod stays pending")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    quoted = {word for row in rows for word in code_words(row)} - _OF_KUBERNETES
    assert len(quoted) >= 12
    source = "".join((ROOT / "scheduler" / each).read_text(encoding="utf-8") for each in _SOURCES)
    # Texts that go on in the next line are one; what is filled in is anything.
    said = re.sub(r"\{[^{}\n]*\}", "", re.sub(r'"\n\s*f?"', "", source)) + " ".join(KIND_WORDS.values())
    parts = {part.strip(" :") for word in quoted for part in _PLACES.split(word.replace(": GPUs. ", "..."))}
    assert {part for part in parts if part not in said} == set()

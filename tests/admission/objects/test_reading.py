"""Objects whose fields have the wrong type."""

from __future__ import annotations

from typing import Any

import pytest

from admission.objects.findings import Finding, read
from admission.objects.messages import told
from wire.crds.queue import Queue

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": (
        {"spec": {"resources": {"gpu": {"quota": "8"}}}},
        'spec.resources.gpu.quota has the wrong type (spec.resources.gpu.quota is "\\"8\\""; allowed: a number)',
    ),
    "a number for text": (
        {"spec": {"parentQueue": 3}},
        'spec.parentQueue has the wrong type (spec.parentQueue is "3"; allowed: a string)',
    ),
    "half a priority": (
        {"spec": {"priority": 0.5}},
        'spec.priority has the wrong type (spec.priority is "0.5"; allowed: a whole number)',
    ),
    "a list for a map": (
        {"spec": {"resources": []}},
        'spec.resources has the wrong type (spec.resources is "[]"; allowed: a map)',
    ),
    "more digits than a number has": (
        {"spec": {"resources": {"gpu": {"limit": 10**400}}}},
        f'spec.resources.gpu.limit has the wrong type (spec.resources.gpu.limit is "1{"0" * 47}... (401 characters)"; '
        "allowed: a number of at most 64 bits)",
    ),
    "a number for a label": (
        {"metadata": {"labels": {"team": 3}}},
        'metadata.labels[...] has the wrong type (metadata.labels[...] is "{\\"team\\":3}"; allowed: a string)',
    ),
    "text for the whole spec": (
        {"spec": "resources"},
        'spec has the wrong type (spec is "\\"resources\\""; allowed: a map)',
    ),
}


@pytest.mark.parametrize(("raw", "said"), WRONG.values(), ids=WRONG)
def test_the_field_of_the_wrong_type_is_named(raw: dict[str, Any], said: str) -> None:
    found = read(raw, Queue)
    assert isinstance(found, Finding)
    assert told(found) == said


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"status": "broken"}, {"spec": {"unknown": 1}}])
def test_what_rules_do_not_read_does_not_matter(raw: dict[str, Any]) -> None:
    assert read(raw, Queue) == Queue()

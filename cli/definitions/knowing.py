"""What a CustomResourceDefinition knows: versions, and the fields of each. What it does not know is lost in a write.

The API server prunes fields that the schema does not name, so a definition may be replaced by one that knows all that
it knows, and by no other. Numbers of versions would not tell: Moorage and KAI share these names, and count for
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

Raw = Mapping[str, Any]

#: Below it, every field is kept.
_ANYTHING: Final = "anything"


class Knowledge(msgspec.Struct, frozen=True):
    """``facts``: short texts for people that are compared as they are. ``open``: places below which all is kept.

    ``choices``: the values of places that take no others.
    """

    facts: frozenset[str]
    choices: Mapping[str, frozenset[str]]
    open: frozenset[str]

    def lacks(self, other: Knowledge) -> tuple[str, ...]:
        """What the other knows and this does not, in order."""
        facts = {fact for fact in other.facts - self.facts if not self._is_kept(fact)}
        facts |= {
            f"{place}={value}"
            for place, values in other.choices.items()
            for value in values - self.choices.get(place, values)
        }
        return tuple(sorted(facts))

    def _is_kept(self, fact: str) -> bool:
        return any(fact.startswith((f"{place}.", f"{place}[]")) for place in self.open)


def known(crd: Raw) -> Knowledge:
    """Read a definition, as it is rendered or as the API server returns it."""
    spec, facts, choices = crd["spec"], set[str](), dict[str, frozenset[str]]()
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        facts.add("a webhook that converts")
    if spec.get("preserveUnknownFields"):
        facts.add("fields that no schema names")
    facts |= {f"{name} (of stored objects)" for name in (crd.get("status") or {}).get("storedVersions") or ()}
    for version in spec["versions"]:
        name = version["name"]
        # A version that is ours may be what objects are stored as.
        facts |= {name, f"{name} (of stored objects)"}
        if version.get("served"):
            facts.add(f"{name} (served)")
        facts |= {f"{name} {part}" for part in version.get("subresources") or {}}
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for place, said in _places(name, schema):
            facts |= {f"{place} ({kind})" for kind in _kinds(said)}
            if said.get("enum"):
                choices[place] = frozenset(map(str, said["enum"]))
    suffix = f" ({_ANYTHING})"
    places = frozenset(fact.removesuffix(suffix) for fact in facts if fact.endswith(suffix))
    return Knowledge(frozenset(facts), choices, places)


def _places(place: str, schema: Raw) -> Iterator[tuple[str, Raw]]:
    """Each place in a schema, as ``v2 spec.levels[].nodeLabel``, with what the schema says of it."""
    yield place, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from _places(f"{place}.{name}" if " " in place else f"{place} {name}", inner)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(inner := schema.get(key), Mapping):
            yield from _places(f"{place}{mark}", inner)


def _kinds(said: Raw) -> Iterator[str]:
    """What may stand at a place."""
    if said.get("x-kubernetes-int-or-string"):
        yield "integer or string"
    elif said.get("type"):
        yield said["type"]
    if said.get("x-kubernetes-preserve-unknown-fields") or said.get("additionalProperties") is True:
        yield _ANYTHING

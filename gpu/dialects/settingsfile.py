"""Settings of dialects as administrators write them: YAML or JSON, in a file or on a namespace (docs/dialects.md).

The fields are those of gpu/dialects/settings.py by their names. What is not said stays as it was, so a namespace says
only what is different in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
import yaml

from gpu.dialects import nodesettings
from gpu.dialects.checking import mistakes
from gpu.dialects.settings import DialectSettings, NodeAliyun
from gpu.refusal import Mistake, Refusal, shown
from wire import names
from wire.writtenout import WrittenOut

#: What nodes have and administrators promise, so it is the same in all namespaces; and what is no dialect's.
_OF_THE_CLUSTER: Final = frozenset({"replicas", "sharing", "nodes", "metagpu.units", "metagpu.resource"})
#: Of a namespace's settings; all of them take a tenth. Reviews wait while it is read.
_LONGEST_OF_NAMESPACE: Final = 16_384
_ALLOWED: Final = {bool: "true or false", int: "a whole number", str: "text", tuple[str, ...]: "a list of texts"}


def of_cluster(text: str) -> DialectSettings | tuple[Refusal, ...]:
    """Read a file, or say all that is wrong with it."""
    said = _decoded(text, "the file")
    if isinstance(said, Refusal):
        return (said,)
    found = _merged(
        DialectSettings(), {name: said[name] for name in said if name != "nodes"}, path="", kept=frozenset()
    )
    if isinstance(found, Refusal):
        return (found,)
    nodes = nodesettings.read(said.get("nodes"), _merged)
    if isinstance(nodes, Refusal):
        return (nodes,)
    settings: DialectSettings = msgspec.structs.replace(found, nodes=nodes)
    return mistakes(settings) or nodesettings.mistakes(settings) or settings


def of_namespace(text: str, cluster: DialectSettings) -> DialectSettings | Refusal:
    """Read a namespace's annotation over the cluster's settings, or say the first thing that is wrong with it."""
    if len(text) > _LONGEST_OF_NAMESPACE:
        allowed = f"at most {_LONGEST_OF_NAMESPACE} characters"
        return _wrong(names.DIALECTS, text[:40], f"has {len(text)} characters", allowed)
    said = _decoded(text, names.DIALECTS)
    if isinstance(said, Refusal):
        return said
    found = _merged(cluster, said, path="", kept=_OF_THE_CLUSTER)
    if isinstance(found, Refusal):
        return found
    if found.aliyun.unit_mib != cluster.aliyun.unit_mib or "unit_mib" in (said.get("aliyun") or {}):
        # In which unit manifests are written is their namespace's to say, wherever their pods go.
        nodes = tuple(msgspec.structs.replace(node, aliyun=NodeAliyun()) for node in found.nodes)
        found = msgspec.structs.replace(found, nodes=nodes)
    wrong = mistakes(found)
    return wrong[0] if wrong else found


def _decoded(text: str, field: str) -> Mapping[str, Any] | Refusal:
    try:
        value = yaml.load(text, Loader=WrittenOut)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _wrong(field, text, "is not YAML", " ".join(str(error).split()) or "YAML or JSON")
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else _wrong(field, text, "is no object", "fields, such as clearml")


def _merged(base: Any, said: Mapping[str, Any] | Refusal, *, path: str, kept: frozenset[str]) -> Any:
    """Put what is said over ``base``, a struct of settings: the new struct, or a Refusal. ``kept`` can't be said."""
    if isinstance(said, Refusal):
        return said
    fields = {field.name: field.type for field in msgspec.structs.fields(base)}
    changed: dict[str, Any] = {}
    for name, value in said.items():
        where = path + _told(name)
        if where in kept:
            return _wrong(where, _told(value), "is a setting of the cluster", "in the cluster's file only")
        if name not in fields:
            can = sorted(set(fields) - kept)
            return _wrong(where, _told(value), "is no setting", f"one of {', '.join(path + each for each in can)}")
        inner = getattr(base, name)
        if not isinstance(inner, msgspec.Struct):
            made = _leaf(where, value, fields[name])
        elif isinstance(value, Mapping):
            made = _merged(inner, value, path=f"{where}.", kept=kept)
        else:
            made = _wrong(where, _told(value), "has to be an object", f"fields, such as {inner.__struct_fields__[0]}")
        if isinstance(made, Refusal):
            return made
        changed[name] = made
    return msgspec.structs.replace(base, **changed)


def _leaf(where: str, value: object, kind: Any) -> Any:
    """One value, of exactly its type; null where that is the setting's own default."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        known = next((words for each, words in _ALLOWED.items() if kind in {each, each | None}), str(kind))
        return _wrong(where, _told(value), "can't be that", known)


def _told(value: object) -> str:
    """A value for people. Lists and objects are not written out: aliases of YAML make large ones of little text."""
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, Collection) and not isinstance(value, str) else str(value)


def _wrong(field: str, value: str, what: str, allowed: str) -> Refusal:
    return Refusal(code=Mistake.MALFORMED, field=field, value=shown(value), message=f"{field} {what}", allowed=allowed)

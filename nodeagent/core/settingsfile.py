"""A device plug-in's file: NVIDIA's ``version: v1`` and iktos' ``resourceConfig``, with a section ``moorage`` of ours.

Any text is either read or refused with the path of each wrong entry. A key that nobody knows is a mistake; a key of
NVIDIA's plugin that this one does not serve says so, and the plug-in then serves nothing on that node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodeagent.core import boundedyaml
from nodeagent.core.flags import (
    FEATURE_DISCOVERY_FLAGS,
    FLAGS,
    IKTOS_FLAGS,
    PLUGIN_FLAGS,
    Flag,
    read_flag,
)
from nodeagent.core.mistake import Mistake, shown
from nodeagent.core.settings import PluginSettings
from nodeagent.core.sharingfile import resource_config, time_slicing, unknown_keys

_THE_FILE: Final = "the file"
_OURS: Final = "moorage"
_RESOURCE_CONFIG: Final = "resourceConfig"
_RESOURCE_CONFIG_VARIABLE: Final = "NVIDIA_DRIVER_RESOURCE_CONFIG"
_IGNORED_VARIABLE, _COUNTED_VARIABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
_SECTIONS: Final = frozenset({"version", "flags", "resources", "sharing", "imex", _RESOURCE_CONFIG, _OURS})
_OUR_KEYS: Final = frozenset({"gone", "ignoredXids", "countedXids", "healingSeconds", "labels"})
_MOST_XID: Final = 100_000
_LONGEST_REST_S: Final = 86_400
_MOST_GONE: Final = 64
#: More of them help nobody.
_MOST_MISTAKES: Final = 50


def read(text: str, environment: Mapping[str, str]) -> PluginSettings | tuple[Mistake, ...]:
    """Read a file, "" for none, and the variables of NVIDIA's plugin, which go before it."""
    try:
        said = boundedyaml.decoded(text)
    except boundedyaml.Unreadable as error:
        return (Mistake(_THE_FILE, f"can't be read: {error}", "YAML"),)
    if said is None:
        said = {}
    if not isinstance(said, dict):
        return (Mistake(_THE_FILE, f"is {shown(said)}", "an object with version: v1"),)
    fields: dict[str, Any] = {}
    mistakes = [*_document(said, fields), *_environment(environment, fields)]
    return tuple(mistakes[:_MOST_MISTAKES]) or PluginSettings(**fields)


def _document(said: dict[Any, Any], into: dict[str, Any]) -> Iterator[Mistake]:
    is_iktos = _RESOURCE_CONFIG in said and "flags" not in said
    yield from unknown_keys(said, _SECTIONS | (IKTOS_FLAGS.keys() if is_iktos else set()), "")
    if said.get("version") not in (None, "v1"):
        yield Mistake("version", f"{shown(said['version'])} is not allowed", "v1")
    if is_iktos:
        yield from _flags({key: said[key] for key in IKTOS_FLAGS if key in said}, IKTOS_FLAGS, "", into)
    yield from _all_flags(said.get("flags"), into)
    if said.get(_RESOURCE_CONFIG) is not None:
        yield from resource_config(said[_RESOURCE_CONFIG], _RESOURCE_CONFIG, into)
    if said.get("resources") is not None:
        allowed = "no such section: sharing.timeSlicing.resources has names of its own for devices"
        yield Mistake("resources", "is not served, and NVIDIA's plugin does not read it", allowed, is_unserved=True)
    yield from _sharing(said.get("sharing"), into, is_iktos=_RESOURCE_CONFIG in said)
    yield from _imex(said.get("imex"))
    yield from _ours(said.get(_OURS), into)


def _all_flags(value: object, into: dict[str, Any]) -> Iterator[Mistake]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Mistake("flags", f"is {shown(value)}", "an object")
        return
    plain = {key: each for key, each in value.items() if key not in {"plugin", "gfd"}}
    yield from _flags(plain, FLAGS, "flags.", into)
    for section, known in (("plugin", PLUGIN_FLAGS), ("gfd", FEATURE_DISCOVERY_FLAGS)):
        inner = value.get(section) or {}
        if isinstance(inner, dict):
            yield from _flags(inner, known, f"flags.{section}.", into)
        else:
            yield Mistake(f"flags.{section}", f"is {shown(inner)}", "an object")


def _flags(said: dict[Any, Any], known: Mapping[str, Flag], path: str, into: dict[str, Any]) -> Iterator[Mistake]:
    yield from unknown_keys(said, frozenset(known), path.rstrip("."))
    for key, flag in known.items():
        yield from read_flag(flag, path + key, said.get(key), into)


def _sharing(value: object, into: dict[str, Any], *, is_iktos: bool) -> Iterator[Mistake]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Mistake("sharing", f"is {shown(value)}", "an object with timeSlicing")
        return
    yield from unknown_keys(value, {"timeSlicing", "mps"}, "sharing")
    if value.get("mps") is not None:
        yield Mistake("sharing.mps", "is not served", "timeSlicing", is_unserved=True)
    if value.get("timeSlicing") is None:
        return
    if is_iktos:
        yield Mistake("sharing.timeSlicing", f"is there beside {_RESOURCE_CONFIG}", "one of the two")
        return
    yield from time_slicing(value["timeSlicing"], "sharing.timeSlicing", into)


def _imex(value: object) -> Iterator[Mistake]:
    """No channels are what NVIDIA's plugin has without the section."""
    if value is None or (isinstance(value, dict) and not value.get("channelIDs") and value.get("required") is not True):
        return
    yield Mistake("imex", "is not served", "no such section", is_unserved=True)


def _ours(value: object, into: dict[str, Any]) -> Iterator[Mistake]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Mistake(_OURS, f"is {shown(value)}", "an object")
        return
    yield from unknown_keys(value, _OUR_KEYS, _OURS)
    gone = value.get("gone") or []
    if isinstance(gone, list) and len(gone) <= _MOST_GONE and all(isinstance(one, str) for one in gone):
        into["gone"] = frozenset(gone)
    else:
        yield Mistake(f"{_OURS}.gone", f"{shown(gone)} is not allowed", f"a list of at most {_MOST_GONE} UUIDs")
    for key, field in (("ignoredXids", "ignored_xids"), ("countedXids", "counted_xids")):
        if key in value:
            yield from _xids(value[key], f"{_OURS}.{key}", field, into)
    rest, labels = value.get("healingSeconds", 60), value.get("labels", True)
    if isinstance(rest, int) and not isinstance(rest, bool) and 0 < rest <= _LONGEST_REST_S:
        into["healing_s"] = rest
    else:
        yield Mistake(f"{_OURS}.healingSeconds", f"{shown(rest)} is not allowed", f"1 to {_LONGEST_REST_S}")
    if isinstance(labels, bool):
        into["labels"] = labels
    else:
        yield Mistake(f"{_OURS}.labels", f"{shown(labels)} is not allowed", "true or false")


def _xids(value: object, path: str, field: str, into: dict[str, Any]) -> Iterator[Mistake]:
    if value == "all":
        into[field] = None
    elif isinstance(value, list) and len(value) <= 1000 and all(_is_xid(one) for one in value):
        into[field] = frozenset(value)
    else:
        yield Mistake(path, f"{shown(value)} is not allowed", f"all, or a list of numbers from 1 to {_MOST_XID}")


def _is_xid(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_XID


def _environment(environment: Mapping[str, str], into: dict[str, Any]) -> Iterator[Mistake]:
    """An empty variable is none, as in a manifest that leaves it out."""
    for flag in (*FLAGS.values(), *PLUGIN_FLAGS.values()):
        yield from read_flag(flag, flag.variable, environment.get(flag.variable) or None, into)
    if config := environment.get(_RESOURCE_CONFIG_VARIABLE):
        if "entries" in into:
            yield Mistake(_RESOURCE_CONFIG_VARIABLE, "is there beside resources of the file", "one of the two")
        else:
            yield from resource_config(config, _RESOURCE_CONFIG_VARIABLE, into)
    for variable, field in ((_IGNORED_VARIABLE, "ignored_xids"), (_COUNTED_VARIABLE, "counted_xids")):
        if words := [word for word in environment.get(variable, "").lower().replace(" ", "").split(",") if word]:
            into[field] = _listed(words)


def _listed(words: list[str]) -> frozenset[int] | None:
    """XIDs of a variable. As NVIDIA's plugin does, a word that is no number is left out."""
    if not {"all", "xids"}.isdisjoint(words):
        return None
    return frozenset(int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 10)

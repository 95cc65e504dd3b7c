"""Which resources a file has under other names and as replicas: NVIDIA's ``sharing`` and iktos' ``resourceConfig``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from nodeagent.core.mistake import Mistake, shown
from nodeagent.core.settings import MOST_IDS, PREFIX, All, Auto, Devices, Entry

#: Most entries of a file: one for each card and each slice of 32 GPUs.
_MOST_ENTRIES: Final = 256
_NAME: Final = re.compile(r"(?:nvidia\.com/)?([A-Za-z0-9](?:[-A-Za-z0-9_.]{0,51}[A-Za-z0-9])?)", re.ASCII)
_WHAT: Final = re.compile(r"gpu|mig-[0-9]+g\.[0-9]+gb(?:[.+-][a-z0-9.+-]*)?", re.ASCII)
_COUNT: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_REFERENCE: Final = re.compile(r"[0-9]{1,4}(?::[0-9]{1,4})?|(?:GPU|MIG)-[0-9a-zA-Z/-]{1,120}", re.ASCII)
_PLAIN: Final = re.compile(r"[-A-Za-z0-9_/]{1,63}", re.ASCII)
_ENTRY_KEYS: Final = frozenset({"name", "rename", "devices", "replicas"})
_SHARED: Final = ".shared"
_REPLICAS: Final = f"1 to {MOST_IDS}, or auto"
_DEVICES: Final = 'all, a number above 0, or a list of indices, of "i:j", and of UUIDs'
_IKTOS_FORM: Final = "<gpu or mig-PROFILE>:<name>:<replicas>, such as gpu:sharedgpu:4; -1 replicas mean memory"


def time_slicing(value: object, path: str, into: dict[str, Any]) -> Iterator[Mistake]:
    """Read ``sharing.timeSlicing`` into the fields of PluginSettings."""
    if not isinstance(value, dict):
        yield Mistake(path, f"is {shown(value)}", "an object with resources")
        return
    known = {"renameByDefault", "failRequestsGreaterThanOne", "resources"}
    yield from unknown_keys(value, known, path)
    switches = {key: value.get(key) or False for key in ("renameByDefault", "failRequestsGreaterThanOne")}
    for key, switch in switches.items():
        if not isinstance(switch, bool):
            yield Mistake(f"{path}.{key}", f"{shown(switch)} is not allowed", "true or false")
    into["fail_requests_greater_than_one"] = switches["failRequestsGreaterThanOne"] is True
    resources = value.get("resources")
    if not isinstance(resources, list) or not 0 < len(resources) <= _MOST_ENTRIES:
        yield Mistake(f"{path}.resources", f"is {shown(resources)}", f"a list of 1 to {_MOST_ENTRIES} resources")
        return
    found: list[Entry] = []
    for at, one in enumerate(resources):
        yield from _resource(one, f"{path}.resources[{at}]", found, renamed=switches["renameByDefault"] is True)
    into["entries"] = tuple(found)


def unknown_keys(value: dict[Any, Any], known: set[str] | frozenset[str], path: str) -> Iterator[Mistake]:
    """Name each key that is not known."""
    for key in value:
        if key not in known:
            name = key if isinstance(key, str) and _PLAIN.fullmatch(key) else shown(key)
            yield Mistake(f"{path}.{name}".lstrip("."), "is no setting", ", ".join(sorted(known)))


def _resource(value: object, path: str, found: list[Entry], *, renamed: bool) -> Iterator[Mistake]:
    if not isinstance(value, dict):
        yield Mistake(path, f"is {shown(value)}", "an object with name and replicas")
        return
    yield from unknown_keys(value, _ENTRY_KEYS, path)
    name, rename = _name(value.get("name")), _name(value.get("rename"))
    if not name:
        yield Mistake(f"{path}.name", f"{shown(value.get('name'))} is not allowed", f"a resource of {PREFIX}")
    if value.get("rename") is not None and not rename:
        yield Mistake(f"{path}.rename", f"{shown(value['rename'])} is not allowed", f"a resource of {PREFIX}")
    replicas, devices = _replicas(value.get("replicas")), _devices(value.get("devices"))
    if replicas is None:
        yield Mistake(f"{path}.replicas", f"{shown(value.get('replicas'))} is not allowed", _REPLICAS)
    if devices is None:
        yield Mistake(f"{path}.devices", f"{shown(value['devices'])} is not allowed", _DEVICES)
    if name and replicas is not None and devices is not None:
        default = name + _SHARED if renamed else name
        found.append(Entry(path=path, name=name, rename=rename or default, replicas=replicas, devices=devices))


def _name(value: object) -> str:
    """The resource in full; "" for what is no name of one."""
    match = _NAME.fullmatch(value) if isinstance(value, str) else None
    return PREFIX + match[1] if match else ""


def _replicas(value: object) -> int | Auto | None:
    if value == "auto":
        return Auto.PER_GIB
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_IDS:
        return value
    return None


def _devices(value: object) -> Devices | None:
    if value is None or value == "all":
        return All.ALL
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 < value <= MOST_IDS else None
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ENTRIES:
        return None
    words = [str(one) for one in value if isinstance(one, str | int) and not isinstance(one, bool)]
    if len(words) < len(value) or not all(_REFERENCE.fullmatch(word) for word in words):
        return None
    return tuple(words)


def resource_config(value: object, path: str, into: dict[str, Any]) -> Iterator[Mistake]:
    """Read iktos' entries into the fields of PluginSettings."""
    entries = value.split(",") if isinstance(value, str) else []
    if not 0 < len(entries) <= _MOST_ENTRIES or not isinstance(value, str) or not value:
        yield Mistake(path, f"{shown(value)} is not allowed", f"{_IKTOS_FORM}, separated by commas")
        return
    found = []
    for at, text in enumerate(entries):
        entry = _iktos_entry(text.strip(), f"{path}[{at}]")
        if entry is None:
            yield Mistake(f"{path}[{at}]", f"{shown(text)} is no entry", _IKTOS_FORM)
        else:
            found.append(entry)
    into["entries"] = tuple(found)


def _iktos_entry(text: str, path: str) -> Entry | None:
    what, *rest = text.split(":")
    if len(rest) != 2 or not _WHAT.fullmatch(what) or not _COUNT.fullmatch(rest[1]):
        return None
    rename, count = _name(rest[0]), int(rest[1])
    replicas = Auto.PER_1000_MIB if count == -1 else _replicas(count)
    if not rename or replicas is None:
        return None
    return Entry(path=path, name=PREFIX + what.replace("+", "."), rename=rename, replicas=replicas)

"""A device plug-in's file: NVIDIA's ``version: v1`` and iktos' ``resourceConfig``, with a section ``moorage`` of ours.

Any text is either read or refused with the path of each wrong entry. A key that nobody knows is a mistake; a key of
NVIDIA's plugin that this one does not serve says so, and the plug-in then serves nothing on that node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml
from typing_extensions import override

from nodeagent.core.plugin.settings import (
    MOST_IDS,
    PREFIX,
    All,
    Auto,
    Delivery,
    Devices,
    Entry,
    IdStrategy,
    MigStrategy,
    Mistake,
    PluginSettings,
    Policy,
    shown,
)
from wire.yaml_text import WrittenOut, why_not_yaml

#: A file of 32 GPUs with an entry each has 5 KiB.
MOST_BYTES: Final = 65_536
_MOST_LEVELS: Final = 20
#: YAML 1.1 reads ``1:0`` as sixty, and a MIG slice is written so.
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_INTEGER, _STRING = "tag:yaml.org,2002:int", "tag:yaml.org,2002:str"
#: Words that YAML makes something else of than text.
_KEPT: Final = frozenset({"tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"})


class Unreadable(ValueError):
    """Raised when a text is no YAML of this kind; the message says where and why."""


class _Loader(WrittenOut):
    """Builds mappings, lists, text, decimal numbers, booleans and null."""

    _level = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._level == _MOST_LEVELS:
            mark = parent.start_mark if parent else None
            raise yaml.composer.ComposerError(None, None, f"more than {_MOST_LEVELS} levels", mark)
        event = self.peek_event()  # type: ignore[no-untyped-call]  # its stub has no types
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(None, None, "tags (!name) are not read here", event.start_mark)
        self._level += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._level -= 1

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INTEGER, re.compile(f"(?:{_DECIMAL.pattern})$", re.ASCII), list("-+0123456789"))


def decoded(text: str) -> object:
    """Read a text of at most ``MOST_BYTES``. Raises Unreadable.

    It is bounded before it is built: its size, its depth, and no aliases, tags or repeated keys.
    """
    if len(text.encode(errors="surrogatepass")) > MOST_BYTES:
        raise Unreadable(f"has more than {MOST_BYTES} bytes")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(why_not_yaml(error)) from error


_E = TypeVar("_E", MigStrategy, IdStrategy, Policy)
_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?/", re.ASCII)
_LONGEST_PATH: Final = 4096


class NotAllowed(ValueError):
    """Raised by a reader; the text is what is allowed."""


class NotServed(NotAllowed):
    """Raised for what NVIDIA's plugin does and this one does not."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its value is read, and the field of PluginSettings that it sets; "" for one without effect.

    They are those of NVIDIA's device plugin that are served. One table has the names in a file and in the environment,
    as NVIDIA's has; a variable goes before the file. Source: NVIDIA device plugin v0.20, api/config/v1 and README
    (docs/device-plugin.md has the table).
    """

    variable: str
    read: Callable[[object], Any]
    field: str = ""


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise NotAllowed("true or false")


def _text(value: object) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise NotAllowed("text")


def _path(value: object) -> str:
    if isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) <= _LONGEST_PATH:
        return value
    raise NotAllowed("an absolute path")


def _one_of(kind: type[_E]) -> Callable[[object], _E]:
    def read(value: object) -> _E:
        found = next((each for each in kind if each.value == value), None)
        if found is None:
            raise NotAllowed(", ".join(each.value for each in kind))
        return found

    return read


def _deliveries(value: object) -> frozenset[Delivery]:
    """One strategy, several separated by commas, or a list of them."""
    words = value.split(",") if isinstance(value, str) else value
    known = {each.value: each for each in Delivery}
    if isinstance(words, list) and words and all(isinstance(word, str) and word in known for word in words):
        return frozenset(known[word] for word in words)
    raise NotAllowed(f"one or a list of {', '.join(known)}")


def _annotation_prefix(value: object) -> str:
    if isinstance(value, str) and _PREFIX.fullmatch(value):
        return value
    raise NotAllowed("a domain and a slash, such as cdi.k8s.io/")


def _off(value: object) -> bool:
    if _boolean(value):
        raise NotServed("false: this device plug-in does not serve it")
    return False


def _discovery(value: object) -> str:
    if isinstance(value, str) and value in {"auto", "nvml"}:
        return value
    raise NotServed("auto, nvml") if value == "tegra" else NotAllowed("auto, nvml")


#: Of the section ``flags``.
FLAGS: Final = {
    "migStrategy": Flag("MIG_STRATEGY", _one_of(MigStrategy), "mig_strategy"),
    "failOnInitError": Flag("FAIL_ON_INIT_ERROR", _boolean, "fail_on_init_error"),
    "mpsRoot": Flag("MPS_ROOT", _text),
    "nvidiaDriverRoot": Flag("NVIDIA_DRIVER_ROOT", _path, "driver_root"),
    "nvidiaDevRoot": Flag("NVIDIA_DEV_ROOT", _path, "dev_root"),
    "gdrcopyEnabled": Flag("GDRCOPY_ENABLED", _off),
    "gdsEnabled": Flag("GDS_ENABLED", _off),
    "mofedEnabled": Flag("MOFED_ENABLED", _off),
    "useNodeFeatureAPI": Flag("USE_NODE_FEATURE_API", _boolean),
    "deviceDiscoveryStrategy": Flag("DEVICE_DISCOVERY_STRATEGY", _discovery),
}
#: Of the section ``flags.plugin``.
PLUGIN_FLAGS: Final = {
    "passDeviceSpecs": Flag("PASS_DEVICE_SPECS", _boolean, "pass_device_specs"),
    "deviceListStrategy": Flag("DEVICE_LIST_STRATEGY", _deliveries, "deliveries"),
    "deviceIDStrategy": Flag("DEVICE_ID_STRATEGY", _one_of(IdStrategy), "id_strategy"),
    "cdiAnnotationPrefix": Flag("CDI_ANNOTATION_PREFIX", _annotation_prefix, "cdi_annotation_prefix"),
    "nvidiaCTKPath": Flag("NVIDIA_CTK_PATH", _path, "ctk_path"),
    "containerDriverRoot": Flag("CONTAINER_DRIVER_ROOT", _text),
    "sharedDevicesAllocationPolicy": Flag("SHARED_DEVICES_ALLOCATION_POLICY", _one_of(Policy), "policy"),
}
#: Of the section ``flags.gfd``: settings of a program that this is not.
FEATURE_DISCOVERY_FLAGS: Final = {
    "oneshot": Flag("", _boolean),
    "noTimestamp": Flag("", _boolean),
    "sleepInterval": Flag("", _text),
    "outputFile": Flag("", _text),
    "machineTypeFile": Flag("", _text),
}
#: Of iktos' chart, which has no sections.
IKTOS_FLAGS: Final = {
    "compatWithCPUManager": Flag("", _boolean, "pass_device_specs"),
    "migStrategy": FLAGS["migStrategy"],
    "failOnInitError": FLAGS["failOnInitError"],
    "deviceListStrategy": PLUGIN_FLAGS["deviceListStrategy"],
    "deviceIDStrategy": PLUGIN_FLAGS["deviceIDStrategy"],
    "nvidiaDriverRoot": FLAGS["nvidiaDriverRoot"],
    "legacyDaemonsetAPI": Flag("", _off),
    "runtimeClassName": Flag("", _text),
}


def read_flag(flag: Flag, path: str, value: object, into: dict[str, Any]) -> Iterable[Mistake]:
    """Read one value into the fields of PluginSettings; null is as if it was not there."""
    if value is None:
        return
    try:
        read = flag.read(value)
    except NotAllowed as error:
        yield Mistake(path, f"{shown(value)} is not allowed", str(error), isinstance(error, NotServed))
        return
    if flag.field:
        into[flag.field] = read


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
        said = decoded(text)
    except Unreadable as error:
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

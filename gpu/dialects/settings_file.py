"""Settings of dialects as administrators write them: YAML or JSON, in a file or on a namespace (docs/dialects.md).

The fields are those of gpu/dialects/settings.py by their names. What is not said stays as it was, so a namespace says
only what is different in it. Mistakes are told by name before any pod is read with the settings (I9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
import yaml

from gpu.device_plugin import MOST_DEVICES
from gpu.dialects.metagpu import MOST_UNITS
from gpu.dialects.replicas import is_vendors, table
from gpu.dialects.settings import DialectSettings, NodeAliyun, NodeSettings
from gpu.dialects.vgpu import LARGEST_MIB
from gpu.translation import Mistake, Refusal, shown
from wire import names
from wire.yaml_text import WrittenOut

#: An extended resource: a domain and a name.
_RESOURCE: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_UNITS_MIB: Final = (1, 1024)


class _Range(msgspec.Struct, frozen=True, gc=False):
    """What one number may be."""

    field: str
    value: int
    least: int
    most: int


def mistakes(settings: DialectSettings) -> tuple[Refusal, ...]:
    """All settings that can't be; none if all can."""
    replicas = table(settings.replicas)
    return (*_of_numbers(settings), *_of_names(settings), *([replicas] if isinstance(replicas, Refusal) else []))


def _of_numbers(settings: DialectSettings) -> Iterator[Refusal]:
    hami = settings.hami
    for limit in (
        _Range("clearml.legacy_replicas", settings.clearml.legacy_replicas, 0, MOST_DEVICES),
        _Range("metagpu.units", settings.metagpu.units, 1, MOST_UNITS),
        _Range("hami.memory_factor", hami.memory_factor, 1, LARGEST_MIB),
        _Range("hami.default_mem_mib", hami.default_mem_mib, 0, LARGEST_MIB),
        _Range("hami.default_cores_percent", hami.default_cores_percent, 0, 100),
        _Range("hami.default_gpus", hami.default_gpus, 1, MOST_DEVICES),
        _Range("volcano.memory_factor", settings.volcano.memory_factor, 1, LARGEST_MIB),
    ):
        if not limit.least <= limit.value <= limit.most:
            yield _out_of_bounds(limit.field, str(limit.value), f"{limit.least} to {limit.most}")
    if settings.aliyun.unit_mib not in _UNITS_MIB:
        yield _out_of_bounds("aliyun.unit_mib", str(settings.aliyun.unit_mib), "1024 for GiB or 1 for MiB")


def _of_names(settings: DialectSettings) -> Iterator[Refusal]:
    resource = settings.metagpu.resource
    if is_vendors(resource) or not _RESOURCE.fullmatch(resource):
        yield _out_of_bounds(
            "metagpu.resource", resource, "a resource of its own with its domain, such as cnvrg.io/metagpu"
        )


def _out_of_bounds(field: str, value: str, allowed: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=shown(value),
        message=f"{field} can't be {shown(value) or 'empty'}",
        allowed=allowed,
    )


#: Each is one more reading of every pod, and one more request in the record of a pod that it matters to.
MOST_NODES: Final = 16
MOST_LABELS: Final = 8

_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_SHAPE: Final = "a list of objects with labels and what is different there: replicas, metagpu, aliyun"

#: Puts what is said over a struct of settings: the new struct, or what is wrong.
Merge = Callable[..., Any]


def read_nodes(said: object, merge: Merge) -> tuple[NodeSettings, ...] | Refusal:
    """Read ``nodes``: labels and what is different where they are. Or say the first thing wrong with its form."""
    if said is None:
        return ()
    if not isinstance(said, list) or len(said) > MOST_NODES:
        return _wrong_node("nodes", said, "can't be that", f"{_SHAPE}; at most {MOST_NODES}")
    found: list[NodeSettings] = []
    for number, entry in enumerate(said):
        one = _one(f"nodes[{number}]", entry, merge)
        if isinstance(one, Refusal):
            return one
        same = next((at for at, other in enumerate(found) if {*other.labels} <= {*one.labels}), None)
        if same is not None:
            return _wrong_node(
                f"nodes[{number}].labels",
                _node_text(one),
                f"never counts: nodes[{same}] comes first and has all such nodes",
                "more labels before fewer, each set once",
            )
        found.append(one)
    return tuple(found)


def _one(where: str, entry: object, merge: Merge) -> NodeSettings | Refusal:
    if not isinstance(entry, Mapping):
        return _wrong_node(where, entry, "can't be that", _SHAPE)
    labels = _labels(f"{where}.labels", entry.get("labels"))
    if isinstance(labels, Refusal):
        return labels
    said = {name: value for name, value in entry.items() if name != "labels"}
    made = merge(NodeSettings(), said, path=f"{where}.", kept=frozenset())
    return made if isinstance(made, Refusal) else msgspec.structs.replace(made, labels=labels)


def _labels(where: str, said: object) -> tuple[tuple[str, str], ...] | Refusal:
    allowed = (
        f"1 to {MOST_LABELS} labels of nodes with their values as text, such as nvidia.com/device-plugin.config: ts"
    )
    if not isinstance(said, Mapping) or not 0 < len(said) <= MOST_LABELS:
        return _wrong_node(where, said, "can't be that", allowed)
    for key, value in said.items():
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            return _wrong_node(where, key, "is no label", allowed)
        if not (isinstance(value, str) and _VALUE.fullmatch(value)):
            return _wrong_node(f"{where}.{key}", value, "is no value of a label", allowed)
    return tuple(sorted(said.items()))


def node_mistakes(settings: DialectSettings) -> tuple[Refusal, ...]:
    """All that can't be of the settings as they are on each kind of node; the cluster's own are known to be right."""
    return tuple(_mistakes(settings))


def _mistakes(settings: DialectSettings) -> Iterator[Refusal]:
    for number, node in enumerate(settings.nodes):
        for mistake in mistakes(node.over(settings)):
            yield msgspec.structs.replace(
                mistake, field=f"nodes[{number}].{mistake.field}", message=f"nodes[{number}]: {mistake.message}"
            )


def _node_text(node: NodeSettings) -> str:
    return ",".join(f"{key}={value}" for key, value in node.labels)


def _wrong_node(field: str, value: object, what: str, allowed: str) -> Refusal:
    text = shown(str(value)) if isinstance(value, str | int | float) else type(value).__name__
    return Refusal(code=Mistake.MALFORMED, field=field, value=text, message=f"{field} {what}", allowed=allowed)


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
    nodes = read_nodes(said.get("nodes"), _merged)
    if isinstance(nodes, Refusal):
        return (nodes,)
    settings: DialectSettings = msgspec.structs.replace(found, nodes=nodes)
    return mistakes(settings) or node_mistakes(settings) or settings


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

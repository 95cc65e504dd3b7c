"""A snapshot with other names: of nodes, namespaces, pods, queues, workloads, images and labels.

Each name becomes ``n`` and its number in the order of all names. A hash could be guessed by hashing likely names; a
number can't. The order of names stays, so decisions, which break ties by names, are the same. The same name has the
same number everywhere in a file, and another one in the next file.

Every text of every field is replaced, but for what is known to say nothing of whose cluster it is (harmless.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cli.snapshots import anonymous_claims, harmless
from cli.snapshots.saved import PLURALS, Saved
from gpu.dialects import nvannotations
from scheduler.core.preemption import nomination_record
from scheduler.core.queues.use_over_time import UseOverTime, counts_written, read_counts
from wire import names
from wire.core import Container, NodeSelectorRequirement, Pod
from wire.resource import DeviceAttribute

Rename = Callable[[str], str]

#: Stands for the fields of a device's attribute. No field and no label has this name.
_ATTRIBUTE: Final = "attribute of a device"
#: What says which GPUs: the label of a node's product, annotations that name products, and attributes of devices.
_OF_GPUS: Final = frozenset(
    {names.NODE_GPU_PRODUCT, names.HAMI_USE_TYPE, names.HAMI_NO_USE_TYPE, names.GPU_RECORD, _ATTRIBUTE}
)
_ADDRESS: Final = "hostIP"
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - how Kubernetes writes it


def anonymized(saved: Saved) -> Saved:
    """Return the snapshot with other names."""
    found: set[str] = set()

    def collect(text: str) -> str:
        found.add(text)
        return text

    _renamed(saved, collect)
    digits = len(str(len(found)))
    by_name = {text: f"n{number:0{digits}d}" for number, text in enumerate(sorted(found), 1)}
    made = _joined(saved, lambda text: by_name.get(text, text))
    return _renamed(saved, lambda text: made.get(text) or by_name[text])


def _joined(saved: Saved, rename: Rename) -> dict[str, str]:
    """Names that are made of others: claims of pods for themselves, and the ConfigMaps of shares."""
    made: dict[str, str] = {}
    for pod in saved.pods:
        meta = pod.metadata
        for volume in pod.spec.volumes or ():
            if volume.ephemeral is not None:
                made[f"{meta.name}-{volume.name}"] = f"{_of(meta.name, rename)}-{_of(volume.name, rename)}"
        prefix = (meta.annotations or {}).get(names.SHARED_GPU_CONFIGMAP)
        for container in _containers(pod) if prefix else ():
            for name in _config_maps(container):
                made[name] = f"{_of(prefix or '', rename)}{name[len(prefix or '') :]}"
    return made


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from pod.spec.init_containers or ()


def _config_maps(container: Container) -> Iterator[str]:
    for variable in container.env or ():
        if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
            yield variable.value_from.config_map_key_ref.name


def _renamed(saved: Saved, rename: Rename) -> Saved:
    changed = {name: _tree(name, getattr(saved, name), rename) for name in PLURALS}
    return msgspec.structs.replace(
        saved,
        **changed,
        unread=[f"{len(saved.unread)} messages, left out as they have names"] if saved.unread else [],
        is_anonymized=True,
        queue_use=_queue_use(saved.queue_use, rename),
        room=None if saved.room is None else _room(saved.room, rename),
    )


# --- objects ---------------------------------------------------------------------------------------------------------
def _tree(field: str, value: Any, rename: Rename) -> Any:
    """A value of this field with other names, in its keys as well where they are no fields of a type."""
    match value:
        case msgspec.Struct():
            fields = ((each.name, _field(value, each.encode_name)) for each in msgspec.structs.fields(value))
            changed = {name: _tree(named, getattr(value, name), rename) for name, named in fields}
            return msgspec.structs.replace(value, **changed)
        case str() if not isinstance(value, enum.Enum):
            return _text(field, value, rename)
        case list() | tuple() | frozenset():
            return type(value)(_tree(field, each, rename) for each in value)
        case dict() if field == "annotations":
            return dict(_annotation(key, text, rename) for key, text in value.items())
        case dict():
            return {harmless.key(key, rename): _tree(key, each, rename) for key, each in value.items()}
        case _:
            return value


def _field(of: msgspec.Struct, name: str) -> str:
    """What says what the texts of a field are: of values of a node's label, the label."""
    if isinstance(of, DeviceAttribute):
        return _ATTRIBUTE
    return of.key if isinstance(of, NodeSelectorRequirement) and name == "values" else name


def _text(field: str, text: str, rename: Rename) -> str:
    if field == "expression":
        return anonymous_claims.expression(text, rename)
    if field == _ADDRESS:  # of an IPv6 address parts are numbers
        return text if text in _ANY_ADDRESS else rename(text)
    return harmless.text(text, rename, of_gpus=field in _OF_GPUS)


def _of(text: str, rename: Rename) -> str:
    """A text with other names."""
    return harmless.text(text, rename)


def _annotation(key: str, text: str, rename: Rename) -> tuple[str, str]:
    if key.startswith((names.NVFRACTIONS_PREFIX, names.PORTION_LIMIT_PREFIX)) and (
        nvannotations.is_asked(key) or nvannotations.is_written(key)
    ):
        return _of_container(key, rename), _of(text, rename)
    return harmless.key(key, rename), _text(key, text, rename)


def _of_container(key: str, rename: Rename) -> str:
    """An annotation whose key names a container."""
    prefix = names.NVFRACTIONS_PREFIX if key.startswith(names.NVFRACTIONS_PREFIX) else names.PORTION_LIMIT_PREFIX
    rest = key.removeprefix(prefix)
    suffixes = (
        *(names.NVFRACTIONS_REQUEST, names.NVFRACTIONS_LIMIT, names.NVFRACTIONS_MODE, names.NVFRACTIONS_DEVICES),
        *(names.NVFRACTIONS_COMPUTE_PORTION, names.PORTION_LIMIT),
    )
    suffix = next((each for each in suffixes if rest.endswith(each)), "")
    return f"{prefix}{_of(rest.removesuffix(suffix), rename)}{suffix}"


# --- the scheduler's records -----------------------------------------------------------------------------------------
def _queue_use(text: str, rename: Rename) -> str:
    used = read_counts(text) if text else ""
    if not isinstance(used, UseOverTime):
        return ""
    return counts_written(msgspec.structs.replace(used, of=_by_queue(used.of, rename)))


def _by_queue(of: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    return {_of(queue, rename): use for queue, use in of.items()}


def _room(text: str, rename: Rename) -> str:
    record: nomination_record.Record = _tree("", nomination_record.read(text).record, rename)
    return nomination_record.written(record)

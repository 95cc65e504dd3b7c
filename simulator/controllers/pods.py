"""What all controllers do: count pods, make them of a template with metadata and owner, and the objects between."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu import manifests
from gpu.translation import shown
from kube.client.resources import PODS, Resource

#: As in apimachinery's util/rand: neither vowels nor look-alikes.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
#: The fields of a template's metadata that its pods get.
_COPIED: Final = ("labels", "annotations", "finalizers")


#: Most pods that all controllers together make.
MOST_PODS: Final = 10_000


class Malformed(ValueError):
    """Raised when no pods can be made; names the field, its value and what is allowed."""


class Template(msgspec.Struct, frozen=True):
    """A pod template: its path in its controller, and its size in bytes as JSON."""

    path: str
    raw: Mapping[str, Any]
    size: int


class Made(msgspec.Struct, frozen=True):
    """An object that a controller makes. ``job``: name of the Job that owns the pod and is made before it, if any.

    The UID of that Job is known only once the API server has it. ``is_later``: the pod is made when
    another pod of its Job has succeeded. ``after``: name of the pod that has to be ready before this one is made.
    """

    body: Mapping[str, Any]
    resource: Resource[Any] = PODS
    job: str = ""
    is_later: bool = False
    after: str = ""


def job_spec_of(kind: str, spec: object) -> Any:
    """Return the spec of the Job that a Job (its own) or a CronJob makes, as it is written; None if there is none."""
    if kind == "CronJob":
        return child(child(spec, "jobTemplate"), "spec")
    return spec if kind == "Job" else None


def count_of(kind: str, spec: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many pods a controller makes at first, and the field that says so. Raises Malformed."""
    if kind == "CronJob":
        count, field = count_of("Job", job_spec_of(kind, spec) or {})
        return (0 if spec.get("suspend") is True else count), f"spec.jobTemplate.{field}"
    if kind != "Job":
        return _number(spec, "replicas", 1), "spec.replicas"
    parallel = _number(spec, "parallelism", 1)
    completions = _number(spec, "completions", parallel)
    field = "spec.parallelism" if parallel <= completions else "spec.completions"
    return (0 if spec.get("suspend") is True else min(parallel, completions)), field


def later_count_of(kind: str, spec: object) -> int:
    """Return how many pods of a Job, or of a CronJob's, are made after its first ones. Raises Malformed."""
    job = job_spec_of(kind, spec)
    first = count_of("Job", job)[0] if isinstance(job, Mapping) else 0
    completions = job.get("completions") if first else None
    return 0 if completions is None else int(completions) - first


def _number(spec: Mapping[str, Any], name: str, default: int) -> int:
    value = spec.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise Malformed(f"spec.{name} is {shown(repr(value))}; a number of 0 or more is allowed")
    return value


def read_template(raw: object, path: str) -> Template:
    """Return a pod template as it is written at a path. Raises Malformed."""
    containers = child(child(raw, "spec"), "containers")
    if not isinstance(raw, Mapping) or not isinstance(containers, list):
        raise Malformed(f"{path} has to be a pod template with spec.containers")
    written: Mapping[str, Any] = manifests.without_nulls(raw)
    _, malformed = manifests.read_pod(written)
    if malformed:
        raise Malformed(f"{path}: {manifests.MALFORMED}: {malformed}")
    try:
        size = len(msgspec.json.encode(written))
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"{path} is not JSON: {error}") from error
    return Template(path, written, size)


def make(
    template: Template,
    owner: Mapping[str, Any],
    *,
    name: str = "",
    generate_name: str = "",
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    extra: Mapping[str, Any] = {},
    job: str = "",
) -> Made:
    """Return a pod of a template. ``extra``: fields of its spec that the controller sets."""
    written = template.raw.get("metadata") or {}
    meta = {field: written[field] for field in _COPIED if written.get(field)}
    if labels:
        meta["labels"] = {**(written.get("labels") or {}), **labels}
    if annotations:
        meta["annotations"] = {**(written.get("annotations") or {}), **annotations}
    named = {"name": name} if name else {"generateName": generate_name}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **meta, "ownerReferences": [owner]},
        "spec": {**template.raw["spec"], **{key: value for key, value in extra.items() if value}},
    }
    return Made(body, job=job)


def owner_of(api_version: str, kind: str, name: str) -> dict[str, Any]:
    """Return the reference to a controller that is not stored; its UID follows from its name."""
    digest = f"{zlib.crc32(f'{api_version}/{kind}/{name}'.encode()):08x}"
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": f"{digest}-0000-4000-8000-{digest:0>12}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def identity(value: object) -> str:
    """Return letters that stand for a value, in the form of pod-template-hash: ten, of an alphabet without vowels."""
    digest = f"{zlib.crc32(msgspec.json.encode(value)):010d}"
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digest)


def child(value: object, key: str) -> Any:
    """Return what stands under a key; None if there is nothing or ``value`` is no object."""
    return value.get(key) if isinstance(value, Mapping) else None


Json = Mapping[str, Any]
#: Takes pods of a template from what may still be made: their number, and the field that says it. Raises Malformed.
Charge = Callable[[int, str, Template], None]


class Placed(msgspec.Struct, frozen=True):
    """What a controller makes: ``owners`` of a pod, the direct one first, and the path of its ``template``.

    ``beside``: other objects that its rule of grouping reads.
    """

    made: Made
    owners: Sequence[Json] = ()
    template: str = ""
    beside: Sequence[Json] = ()


Expand = Callable[[Json, Charge], Iterator[Placed]]


def stored(api_version: str, kind: str, name: str, *, above: Json | None = None, like: Json | None = None) -> Json:
    """Return an object as the API server would have it: with a UID, and with the owner ``above``."""
    written = {} if like is None else like
    meta = {**(child(written, "metadata") or {}), "name": name, "uid": owner_of(api_version, kind, name)["uid"]}
    owners = {} if above is None else {"ownerReferences": [reference(above)]}
    return {**written, "apiVersion": api_version, "kind": kind, "metadata": {**meta, **owners}}


def reference(obj: Json) -> dict[str, Any]:
    """Return the reference that what ``obj`` makes has to it."""
    return owner_of(obj["apiVersion"], obj["kind"], obj["metadata"]["name"])


def placed(owners: Sequence[Json], template: Template, **how: Any) -> Placed:
    """Return a pod of a template, owned by the first of ``owners``; ``how`` as of ``make``."""
    return Placed(make(template, reference(owners[0]), **how), owners, template.path)


def number(obj: object, name: str, path: str, default: int) -> int:
    """Return a count in a field of ``obj``, which stands at ``path``. Raises Malformed."""
    value = child(obj, name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise Malformed(f"{path}.{name} is {shown(repr(value))}; a number of 0 or more is allowed")
    return value


def mapping(obj: object, name: str, path: str) -> Json:
    """Return an object in a field of ``obj``, which stands at ``path``; empty if it is absent. Raises Malformed."""
    value = child(obj, name)
    if value is not None and not isinstance(value, Mapping):
        raise Malformed(f"{path}.{name} is {shown(repr(value))}; an object is allowed")
    return value or {}


def marks(*sources: tuple[object, str]) -> dict[str, dict[str, Any]]:
    """Return labels and annotations of objects, each with its path; the last one wins. Raises Malformed."""
    found = {
        field: {key: text for source, path in sources for key, text in mapping(source, field, path).items()}
        for field in ("labels", "annotations")
    }
    return {field: entries for field, entries in found.items() if entries}


def objects(value: object, path: str) -> Sequence[Json]:
    """Return a list of objects that stands at ``path``; empty if it is absent. Raises Malformed."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise Malformed(f"{path} is {shown(repr(value))}; a list of objects is allowed")
    return value


def named(obj: Json, path: str, *, field: str = "name", default: str = "") -> str:
    """Return the name that an object of a list has. Raises Malformed."""
    value = obj.get(field) or default
    if not isinstance(value, str) or not value:
        raise Malformed(f"{path}.{field} is {shown(repr(obj.get(field)))}; a name is allowed")
    return value

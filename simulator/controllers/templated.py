"""Pods of kinds whose objects have templates of them, by the table of kinds (podgrouper/core/kinds.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.translation import shown
from podgrouper.core import fields
from podgrouper.core.kinds import pods_of
from podgrouper.core.rule_input import Pods
from simulator.controllers.pods import (
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    identity,
    marks,
    named,
    objects,
    placed,
    read_template,
    stored,
)
from wire.go import parse_int

#: The name of a container that has none.
_MAIN: Final = "main"
#: KServe's name of the container of a model server, which is merged with the field for it.
_OF_MODEL: Final = "kserve-container"
#: What a field for the main container has of a container.
_OF_CONTAINERS: Final = ("name", "image", "resources", "env", "envFrom", "command", "args")


def is_known(api_version: object, kind: object) -> bool:
    """Whether pods of this kind are made here."""
    return bool(pods_of(str(api_version), str(kind)))


def expand(controller: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods that an object describes. Raises Malformed."""
    for described in _described(controller):
        spec, pods = child(controller, "spec"), described.pods
        stopped = child(child(controller.get("metadata"), "annotations"), pods.stopped) or "false"
        if stopped == "false" and (not pods.unless or fields.at(spec, pods.unless) is None):
            yield from _pods(described, charge)


def templates(obj: Json) -> Iterator[tuple[str, Json]]:
    """Yield pod templates of specs in an object, with their paths. Raises Malformed."""
    for described in _described(obj):
        raw, path = described.field(described.pods.template)
        if described.pods.is_spec and raw is not None:
            yield path, _template(obj, raw, path, described.pods).raw


def _described(controller: Json) -> Iterator[_Described]:
    for pods in pods_of(str(controller.get("apiVersion")), str(controller.get("kind"))):
        if not pods.each:
            yield _Described(controller, pods)
            continue
        listed = fields.at(child(controller, "spec"), pods.each)
        for at, item in enumerate(objects(listed, f"spec.{pods.each}")):
            yield _Described(controller, pods, item, f"spec.{pods.each}[{at}]")


class _Described(msgspec.Struct, frozen=True):
    """Pods of one sort of an object; ``item``: that of a list which describes them, at ``place``."""

    controller: Json
    pods: Pods
    item: Json | None = None
    place: str = "spec"

    def field(self, path: str) -> tuple[Any, str]:
        """Return the value of a field, and its path from the object."""
        if path.startswith("."):
            return fields.at(self.item, path[1:]), f"{self.place}{path}"
        return fields.at(child(self.controller, "spec"), path), f"spec.{path}"

    def count(self, path: str) -> int:
        """Return a number, 1 where there is none. Raises Malformed."""
        value, full = self.field(path)
        if value is None:
            return 1
        if type(value) is not int or value < 0:
            raise Malformed(f"{full} is {shown(repr(value))}; a number of 0 or more is allowed")
        return value


def _pods(described: _Described, charge: Charge) -> Iterator[Placed]:
    controller, pods = described.controller, described.pods
    raw, path = described.field(pods.template)
    if raw is None and len(pods_of(controller["apiVersion"], controller["kind"])) > 1:
        return
    template = _template(controller, raw, path, pods)
    count = _scale(template, pods.scale) if pods.scale else math.prod(map(described.count, pods.counts))
    charge(count, path, template)
    name = controller["metadata"]["name"]
    if described.item is not None:
        name = f"{name}-{named(described.item, described.place)}"
    elif pods.is_spec and not pods.template.startswith("template"):
        name = f"{name}-{pods.template.partition('.')[0]}"
    owners = _owners(controller, pods, template, name)
    for index in range(count):
        is_numbered = pods.below[:1] == (("apps/v1", "StatefulSet"),)
        how = {"name": f"{name}-{index}"} if is_numbered else {"generate_name": f"{name}-"}
        yield placed(owners, template, **how)


def _owners(controller: Json, pods: Pods, template: Template, name: str) -> list[Json]:
    """The owners of pods, the direct one first."""
    above, owners, like = controller, [controller], {"metadata": marks((template.raw.get("metadata"), template.path))}
    for api_version, kind in reversed(pods.below):
        called = f"{name}-{identity(template.raw)}" if kind == "ReplicaSet" else name
        above = stored(api_version, kind, called, above=above, like=like)
        owners.insert(0, above)
    return owners


def _template(controller: Json, raw: object, path: str, pods: Pods) -> Template:
    if not pods.is_spec and isinstance(raw, Mapping):
        containers = child(child(raw, "spec"), "containers")
        if isinstance(containers, list):
            raw = {**raw, "spec": {**raw["spec"], "containers": [_called(each) for each in containers]}}
        return read_template(raw, path)
    if not isinstance(raw, Mapping):
        return read_template(raw, path)
    main = next((raw[field] for field in pods.container if isinstance(raw.get(field), Mapping)), None)
    spec = {field: value for field, value in raw.items() if field not in pods.container}
    if main is not None:
        beside = [each for each in objects(raw.get("containers"), path) if each.get("name") != _OF_MODEL]
        spec["containers"] = [{field: main[field] for field in _OF_CONTAINERS if field in main}, *beside]
    if isinstance(spec.get("containers"), list):
        spec["containers"] = [_called(each) for each in spec["containers"]]
    copied = ((fields.at(controller, at), at) for at in pods.copied)
    return read_template({"metadata": marks(*copied), "spec": spec}, path)


def _called(container: Any) -> Any:
    """A container with the name and image that its controller gives it where it has none."""
    return {"name": _MAIN, "image": "unknown", **container} if isinstance(container, Mapping) else container


def _scale(template: Template, annotation: str) -> int:
    """How many pods an annotation asks for; one where it does not."""
    text = child(child(template.raw.get("metadata"), "annotations"), annotation)
    return max(1, parse_int(text) or 1) if isinstance(text, str) else 1

"""What all these controllers do: objects between a workload and its pods, and pods with their owners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpu.translation import shown
from simulator.podmaking import Made, Malformed, Template, child, make, owner_of

Json = Mapping[str, Any]
#: Takes pods of a template from what may still be made: their number, and the field that says it. Raises Malformed.
Charge = Callable[[int, str, Template], None]


class Placed(msgspec.Struct, frozen=True):
    """What a controller makes: ``owners`` of a pod, the direct one first, and the path of its ``template``."""

    made: Made
    owners: Sequence[Json] = ()
    template: str = ""


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
    """Return a pod of a template, owned by the first of ``owners``; ``how`` as of podmaking.make."""
    return Placed(make(template, reference(owners[0]), **how), owners, template.path)


def number(obj: object, name: str, path: str, default: int) -> int:
    """Return a count in a field of ``obj``, which stands at ``path``. Raises Malformed."""
    value = child(obj, name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise Malformed(f"{path}.{name} is {shown(repr(value))}; a number of 0 or more is allowed")
    return value


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

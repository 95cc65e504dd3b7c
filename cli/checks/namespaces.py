"""What namespaces let their tenants do with a machine: nothing of ours holds against a privileged pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from admission.settings import Guard
from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw, Reader
from wire import names

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_SAFE: Final = frozenset({"baseline", "restricted"})
_SYSTEM: Final = frozenset({names.SYSTEM_NAMESPACE, names.SCALE_ADJUST_NAMESPACE, names.NODE_NAMESPACE})


async def check_namespaces(reader: Reader) -> list[Finding]:
    """Tenants' namespaces enforce Pod Security, and guard devices."""
    spaces = await reader.items("/api/v1/namespaces")
    return [_of_reservations(spaces), _of_pod_security(spaces), *_of_guards(spaces)]


def _of_reservations(spaces: list[Raw]) -> Finding:
    name = names.RESERVATION_NAMESPACE
    there = next((space for space in spaces if space["metadata"]["name"] == name), None)
    if there is None:
        return Finding(Level.FAILED, "namespaces", f"{name} is not there: no GPU can be shared", f"create {name}")
    if _labels(there).get(_ENFORCE) not in _SAFE:
        said = f"{name} does not enforce Pod Security"
        return Finding(Level.WARNING, "namespaces", said, f"label it {_ENFORCE}=restricted")
    return Finding(Level.OK, "namespaces", f"{name} is there and enforces Pod Security")


def _of_pod_security(spaces: list[Raw]) -> Finding:
    tenants = [
        space for space in spaces if not _is_system(_name(space)) and _name(space) != names.RESERVATION_NAMESPACE
    ]
    open_ones = sorted(_name(space) for space in tenants if _labels(space).get(_ENFORCE) not in _SAFE)
    if not open_ones:
        return Finding(Level.OK, "pod security", f"{len(tenants)} namespaces enforce baseline or restricted")
    said = f"pods may be privileged, or mount the host's files, and so take any GPU, in {some_of(open_ones)}"
    do = f"label them {_ENFORCE}=baseline, or have another admission refuse such pods"
    return Finding(Level.WARNING, "pod security", said, do)


def _of_guards(spaces: list[Raw]) -> Iterator[Finding]:
    said = {_name(space): guard_said(space) for space in spaces}
    malformed = sorted(name for name, value in said.items() if value not in {None, *(guard.value for guard in Guard)})
    allowed = ", ".join(guard.value for guard in Guard)
    if malformed:
        text = f"{names.VISIBLE_DEVICES_GUARD} can't be understood in {some_of(malformed)}: pods are refused there"
        yield Finding(Level.FAILED, "device guard", text, f"set it to one of {allowed}")
    off = sorted(name for name, value in said.items() if value == Guard.OFF.value)
    if off:
        text = f"containers choose their devices by {names.ENV_VISIBLE_DEVICES} in {some_of(off)}"
        yield Finding(Level.WARNING, "device guard", text, f"set {names.VISIBLE_DEVICES_GUARD}=inject or reject there")
    if not malformed and not off:
        yield Finding(Level.OK, "device guard", "no namespace switches it off")


def guard_said(space: Raw) -> str | None:
    """What a namespace says of the guard, as admission reads it (admission/namespaces.py)."""
    annotations: dict[str, str] = space["metadata"].get("annotations") or {}
    return _labels(space).get(names.VISIBLE_DEVICES_GUARD, annotations.get(names.VISIBLE_DEVICES_GUARD))


def _is_system(name: str) -> bool:
    return name in _SYSTEM or name.startswith("kube-")


def _name(space: Raw) -> str:
    return str(space["metadata"]["name"])


def _labels(space: Raw) -> dict[str, str]:
    labels: dict[str, str] = space["metadata"].get("labels") or {}
    return labels

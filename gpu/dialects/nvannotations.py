"""NvFractions' annotations, read: per container a request and a limit of memory, and a mode (kai-contract 1.15).

``nvidia.com/container.<name>.gpu-memory.request`` and the like. What KAI's binder writes under the same prefix is no
request and skipped here: a pod that KAI has bound carries it, and reads as it did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.dialects.gofloat import parse_float
from gpu.refusal import Mistake, Refusal, shown
from wire import names
from wire.quantity import LONGEST, MalformedQuantity, parse_nano

_WRITTEN: Final = (names.NVFRACTIONS_DEVICES, names.NVFRACTIONS_COMPUTE_PORTION)
_KINDS: Final = (names.NVFRACTIONS_REQUEST, names.NVFRACTIONS_LIMIT, names.NVFRACTIONS_MODE)
MODES: Final = ("time-slicing", "sm-sharing")
_MOST_PLACES: Final = 5

Annotations = Mapping[str, str]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations of one container say; memory in nano-bytes, 0 where nothing is said."""

    request_key: str = ""
    limit_key: str = ""
    mode_key: str = ""
    request_nano: int = 0
    limit_nano: int = 0
    mode: str = ""

    @property
    def field(self) -> str:
        """The annotation that asks for memory, the request before the limit."""
        return self.request_key or self.limit_key


def is_written(key: str) -> bool:
    """Whether only a Binding may write this annotation."""
    return key.startswith(names.NVFRACTIONS_PREFIX) and key.endswith(_WRITTEN)


def is_asked(key: str) -> bool:
    """Whether this annotation is a request of this form, well or badly written."""
    if key.startswith(names.NVFRACTIONS_PREFIX):
        return not is_written(key)
    return _is_portion_limit(key)


def read_all(annotations: Annotations) -> dict[str, Asked] | Refusal:
    """Read all of them, by the name of the container in order of names."""
    found: dict[str, Asked] = {}
    for key in sorted(annotations):
        if not key.startswith(names.NVFRACTIONS_PREFIX) or is_written(key):
            continue
        kind = next((each for each in _KINDS if key.endswith(each)), "")
        container = key.removeprefix(names.NVFRACTIONS_PREFIX).removesuffix(kind)
        if not kind or not container:
            return _unknown_key(key, annotations[key])
        asked = _with(found.get(container, Asked()), key, kind, annotations[key])
        if isinstance(asked, Refusal):
            return asked
        found[container] = asked
    return found


def _with(asked: Asked, key: str, kind: str, text: str) -> Asked | Refusal:
    if kind == names.NVFRACTIONS_MODE:
        if text not in MODES:
            return _malformed(
                key, text, f"invalid NvFractions compute mode: {shown(text)}", "one of " + ", ".join(MODES)
            )
        return msgspec.structs.replace(asked, mode_key=key, mode=text)
    nano = _memory(text)
    if not nano:
        message = f"{key} annotation value must be a valid Kubernetes memory quantity greater than 0"
        return _malformed(key, text, message, 'bytes as a quantity above 0, such as "8Gi"')
    if kind == names.NVFRACTIONS_REQUEST:
        return msgspec.structs.replace(asked, request_key=key, request_nano=nano)
    return msgspec.structs.replace(asked, limit_key=key, limit_nano=nano)


def _memory(text: str) -> int:
    """Nano-bytes above 0, or 0 if that can't be."""
    try:
        return max(0, parse_nano(text))
    except MalformedQuantity:
        return 0


# --- a limit in parts of a device --------------------------------------------------------------------------------


def _is_portion_limit(key: str) -> bool:
    return key.startswith(names.PORTION_LIMIT_PREFIX) and key.endswith(names.PORTION_LIMIT)


def portion_limit(annotations: Annotations, target: str) -> int | Refusal:
    """Read the limit beside ``gpu-fraction`` in nano-GPU; 0 if there is none. ``target``: the fraction's container."""
    key = next((each for each in sorted(annotations) if _is_portion_limit(each)), "")
    if not key:
        return 0
    text, fraction = annotations[key], annotations.get(names.GPU_FRACTION, "")
    if not fraction:
        message = f"{key} annotation can only be used together with the {names.GPU_FRACTION} annotation"
        return _incomplete(key, text, message, f"beside {names.GPU_FRACTION}")
    refusal = _other_container(annotations, key, target) or _unsound(key, text, fraction)
    return refusal or parse_nano(text)


def _other_container(annotations: Annotations, key: str, target: str) -> Refusal | None:
    container = key.removeprefix(names.PORTION_LIMIT_PREFIX).removesuffix(names.PORTION_LIMIT)
    said = annotations.get(names.GPU_FRACTION_CONTAINER_NAME)
    if container == (target if said is None else said):
        return None
    message = f"{key} annotation container name {container} does not match the gpu-fraction target container"
    if said is not None:
        message = (
            f"{names.GPU_FRACTION_CONTAINER_NAME} annotation value {shown(said)} does not match container name "
            f"{container} in {key} annotation"
        )
    return Refusal(
        code=Mistake.CONFLICTING, field=key, value=shown(annotations[key]), message=message, allowed=f"{target}'s"
    )


def _unsound(key: str, text: str, fraction: str) -> Refusal | None:
    """What the limit itself may be. KAI counts digits after the point before it reads the number."""
    allowed = f"a decimal number above {names.GPU_FRACTION} and below 1, with at most {_MOST_PLACES} places"
    if len(text.partition(".")[2]) > _MOST_PLACES:
        places = f"{key} annotation value must have at most {_MOST_PLACES} digits after the decimal point"
        return _malformed(key, text, places, allowed)
    limit = _nano(text)
    if limit is None or not 0 < limit < 10**9:
        return _malformed(key, text, f"{key} annotation value must be a positive number smaller than 1.0", allowed)
    least = _nano(fraction)
    if least is not None and limit <= least:
        message = (
            f"{key} annotation value ({text}) must be greater than {names.GPU_FRACTION} annotation value "
            f"({shown(fraction)})"
        )
        return _malformed(key, text, message, allowed)
    return None


def _nano(text: str) -> int | None:
    """The number in nano, if Go's floats and Kubernetes' quantities both read it."""
    if len(text) > LONGEST or parse_float(text) is None:
        return None
    try:
        return parse_nano(text)
    except MalformedQuantity:
        return None


# --- refusals ----------------------------------------------------------------------------------------------------


def _unknown_key(key: str, text: str) -> Refusal:
    ends = ", ".join(f"<container>{kind}" for kind in _KINDS)
    message = f"invalid NvFractions annotation key: {shown(key)}"
    return _malformed(key, text, message, f"{names.NVFRACTIONS_PREFIX} and one of {ends}")


def _malformed(key: str, text: str, message: str, allowed: str) -> Refusal:
    return Refusal(code=Mistake.MALFORMED, field=shown(key), value=shown(text), message=message, allowed=allowed)


def _incomplete(key: str, text: str, message: str, allowed: str) -> Refusal:
    return Refusal(code=Mistake.INCOMPLETE, field=shown(key), value=shown(text), message=message, allowed=allowed)

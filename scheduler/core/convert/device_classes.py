"""Device classes and the selectors of claims: wire objects in, slim records out."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from scheduler.core.model.device_record import DeviceClassRecord
from wire.resource import DeviceClass, DeviceSelector

#: Kubernetes' own limits (resource/v1): selectors of a class or a request, and characters of an expression.
MOST_SELECTORS = 32
LONGEST_EXPRESSION = 10 * 1024


def device_class_record(written: DeviceClass) -> DeviceClassRecord:
    """Read a class. One with a selector that can't be read serves nobody, and says which."""
    selectors, wrong = read_selectors(written.spec.selectors)
    configs = ((each.opaque.driver, each.opaque.parameters) for each in written.spec.config or () if each.opaque)
    return DeviceClassRecord(
        name=written.metadata.name,
        created=written.metadata.creation_timestamp or "",
        selectors=selectors,
        configs=tuple((driver, msgspec.json.encode(parameters).decode()) for driver, parameters in configs),
        extended_resource=written.spec.extended_resource_name or "",
        wrong=f"spec.{wrong}" if wrong else "",
    )


def read_selectors(written: Iterable[DeviceSelector] | None) -> tuple[tuple[str, ...], str]:
    """The expressions, and the field that can't be read ("" if all can)."""
    listed = tuple(written or ())
    if len(listed) > MOST_SELECTORS:
        return (), f"selectors: {len(listed)}, at most {MOST_SELECTORS} are read"
    for number, selector in enumerate(listed):
        if selector.cel is None:
            return (), f"selectors[{number}].cel"
        if len(selector.cel.expression.encode()) > LONGEST_EXPRESSION:
            return (), f"selectors[{number}].cel.expression: longer than {LONGEST_EXPRESSION} bytes"
    return tuple(selector.cel.expression for selector in listed if selector.cel is not None), ""

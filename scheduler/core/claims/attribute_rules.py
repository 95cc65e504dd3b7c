"""Constraints of a claim: its devices agree on an attribute, or all differ in it."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.model.device_need import AttributeRule
from scheduler.core.model.device_record import DeviceKind, Value


def attribute(kind: DeviceKind, name: str) -> Value | None:
    """An attribute by its full name, ``domain/name``; a driver may leave out its own domain. None: it has none."""
    own = name.removeprefix(f"{kind.driver}/")
    found = dict(kind.attributes)
    value = found.get(name)
    if value is None and own != name:
        value = found.get(own)
    return value


class RulesOfClaim:
    """The constraints of one claim, with the values of the devices that were chosen for it so far."""

    __slots__ = ("_rules", "_values")

    def __init__(self, rules: Sequence[AttributeRule]) -> None:
        self._rules = rules
        self._values: list[list[Value]] = [[] for _ in rules]

    def add(self, request: str, kind: DeviceKind) -> bool:
        """Count a device for a request (``request`` or ``request/way``) if all constraints still hold."""
        counted: list[tuple[list[Value], Value]] = []
        for rule, values in zip(self._rules, self._values, strict=True):
            if not _is_of(rule, request):
                continue
            value = attribute(kind, rule.attribute)
            # A device without the attribute, or with a value that can't be read, neither agrees nor differs.
            if value is None or not value.kind:
                return False
            if values and ((value in values) if rule.is_distinct else value != values[0]):
                return False
            counted.append((values, value))
        for values, value in counted:
            values.append(value)
        return True

    def take_back(self, request: str) -> None:
        """Take back the last device, which was one of this request."""
        for rule, values in zip(self._rules, self._values, strict=True):
            if _is_of(rule, request):
                values.pop()


def _is_of(rule: AttributeRule, request: str) -> bool:
    return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests

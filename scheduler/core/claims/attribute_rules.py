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
    """The constraints of one claim, with the values of the devices that were chosen for it so far.

    A search asks for the same devices and requests many times: which constraints a request has, and which values a
    device has for them, is found once.
    """

    __slots__ = ("_attributes", "_known", "_numbers", "_rules", "_values")

    def __init__(self, rules: Sequence[AttributeRule]) -> None:
        self._rules = rules
        self._values: list[list[Value]] = [[] for _ in rules]
        self._attributes = dict.fromkeys(rule.attribute for rule in rules)
        #: Constraints by request, and what devices have, by attribute.
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._known: dict[DeviceKind, dict[str, Value | None]] = {}

    def add(self, request: str, kind: DeviceKind) -> bool:
        """Count a device for a request (``request`` or ``request/way``) if all constraints still hold."""
        numbers = self._of(request)
        if not numbers:
            return True
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = {name: attribute(kind, name) for name in self._attributes}
        for number in numbers:
            rule, values = self._rules[number], self._values[number]
            value = known[rule.attribute]
            # A device without the attribute, or with a value that can't be read, neither agrees nor differs.
            if value is None or not value.kind:
                return False
            if values and ((value in values) if rule.is_distinct else value != values[0]):
                return False
        for number in numbers:
            value = known[self._rules[number].attribute]
            if value is not None:
                self._values[number].append(value)
        return True

    def take_back(self, request: str) -> None:
        """Take back the last device, which was one of this request."""
        for number in self._of(request):
            self._values[number].pop()

    def _of(self, request: str) -> tuple[int, ...]:
        """The constraints of a request, by number."""
        numbers = self._numbers.get(request)
        if numbers is None:
            found = (number for number, rule in enumerate(self._rules) if _is_of(rule, request))
            numbers = self._numbers[request] = tuple(found)
        return numbers


def _is_of(rule: AttributeRule, request: str) -> bool:
    return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests

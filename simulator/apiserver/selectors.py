"""Label and field selectors, parsed once into a predicate over objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from simulator.apiserver.calls import bad_request
from simulator.apiserver.types import ResourceType

Predicate = Callable[[dict[str, Any]], bool]
_LabelTest = Callable[[dict[str, str]], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|[^\s=!,()]+)")
#: One requirement of a field selector. In its value, ``\\``, ``,`` and ``=`` are escaped.
_REQUIREMENT = re.compile(r"(?:[^\\,]|\\.)+", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\,=])")
_FIELD = re.compile(r"([^=!]+?)\s*(==|!=|=)\s*(.*)", re.DOTALL)


def everything(_: dict[str, Any]) -> bool:
    """Match every object."""
    return True


def selection(kind: ResourceType, *, namespace: str, labels: str, fields: str) -> Predicate:
    """Return the predicate of a list or a watch. Raises Refusal (400) for what can't be parsed."""
    tests: list[Predicate] = []
    if namespace and kind.namespaced:
        tests.append(lambda obj: obj["metadata"].get("namespace") == namespace)
    if labels:
        requirements = parse_labels(labels)
        tests.append(lambda obj: _all(requirements, obj["metadata"].get("labels") or {}))
    if fields:
        tests += [_field_test(kind, each) for each in _REQUIREMENT.findall(fields)]
    if not tests:
        return everything
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _all(requirements: list[_LabelTest], labels: dict[str, str]) -> bool:
    return all(test(labels) for test in requirements)


def _field_test(kind: ResourceType, text: str) -> Predicate:
    match = _FIELD.fullmatch(text.strip())
    if match is None:
        raise bad_request(f'invalid selector: "{text}"; can\'t understand "{text}"')
    path, operator, value = match[1], match[2], _ESCAPED.sub(r"\1", match[3])
    if path not in kind.selectable:
        raise bad_request(_unknown_field(kind, path))
    wanted = operator != "!="
    parts = path.split(".")
    return lambda obj: (field_of(obj, parts) == value) is wanted


def pinned(kind: ResourceType, fields: str) -> tuple[str, str] | None:
    """Return a field of the type's own and the value that a fieldSelector wants of it; None if it pins none."""
    for text in _REQUIREMENT.findall(fields):
        match = _FIELD.fullmatch(text.strip())
        if match is not None and match[1] in kind.fields and match[2] != "!=":
            return match[1], _ESCAPED.sub(r"\1", match[3])
    return None


def _unknown_field(kind: ResourceType, path: str) -> str:
    if kind.fields:
        return f"field label not supported: {path}"
    known = ", ".join(f'"{each}"' for each in kind.selectable)
    return f'"{path}" is not a known field selector: only {known}'


def field_of(obj: dict[str, Any], parts: list[str]) -> str:
    """Return a field as text, "" where it is not there."""
    value: Any = obj
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def parse_labels(text: str) -> list[_LabelTest]:
    """Parse a label selector: equality, ``in``, ``notin``, presence and absence, joined by commas."""
    tokens = _tokens(text)
    requirements: list[_LabelTest] = []
    while tokens:
        requirements.append(_requirement(tokens))
        if tokens:
            _expect(tokens, ",")
            if not tokens:
                raise _found("", "identifier after ','")
    return requirements


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # the pattern takes every character
            raise AssertionError(text)
        tokens.append(match.group(1))
        at = match.end()
    return tokens


def _found(token: str, expected: str) -> Exception:
    return bad_request(f"unable to parse requirement: found '{token}', expected: {expected}")


def _expect(tokens: list[str], wanted: str) -> None:
    found = tokens.pop(0) if tokens else ""
    if found != wanted:
        raise _found(found, wanted)


def _identifier(tokens: list[str]) -> str:
    found = tokens.pop(0) if tokens else ""
    if not found or found in ("=", "==", "!=", "!", ",", "(", ")"):
        raise _found(found, "identifier")
    return found


def _requirement(tokens: list[str]) -> _LabelTest:
    if tokens[0] == "!":
        tokens.pop(0)
        absent = _identifier(tokens)
        return lambda labels: absent not in labels
    key = _identifier(tokens)
    if not tokens or tokens[0] == ",":
        return lambda labels: key in labels
    operator = tokens.pop(0)
    if operator in ("=", "=="):
        value = _value(tokens)
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        value = _value(tokens)
        return lambda labels: labels.get(key) != value
    if operator in ("in", "notin"):
        values = _values(tokens)
        return (
            (lambda labels: labels.get(key) in values)
            if operator == "in"
            else (lambda labels: labels.get(key) not in values)
        )
    raise _found(operator, "in, notin, =, ==, !=")


def _value(tokens: list[str]) -> str:
    return "" if not tokens or tokens[0] == "," else _identifier(tokens)


def _values(tokens: list[str]) -> tuple[str, ...]:
    _expect(tokens, "(")
    values = [_value(tokens)]
    while tokens and tokens[0] == ",":
        tokens.pop(0)
        values.append(_identifier(tokens))
    _expect(tokens, ")")
    return tuple(values)

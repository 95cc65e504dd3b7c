"""The vocabulary of our admission policies: CEL expressions, and the manifests around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

Manifest = dict[str, Any]

API: Final = "admissionregistration.k8s.io/v1"

#: Every resource through which metadata of pods is written: sub-resources, and Bindings as a resource of their own
#: (``POST bindings``, deprecated and served to this day), whose object is a Binding that names its pod.
PODS: Final = ("pods", "pods/*", "bindings")

#: Whether this is a Binding, or another sub-resource that is created, by either way.
IS_BINDING: Final = (
    "request.resource.resource == 'bindings' || request.operation == 'CREATE' && request.?subResource.orValue('') != ''"
)

#: The maps of both sides; absent ones are empty. On CREATE there is no old side, on DELETE no new one.
MAPS: Final = {
    f"{side}{field.capitalize()}": f"{source} == null ? {{}} : {source}.?metadata.?{field}.orValue({{}})"
    for side, source in (("old", "oldObject"), ("new", "object"))
    for field in ("annotations", "labels")
}


def changed(field: str, condition: str) -> str:
    """Return CEL for the list of keys of a map that meet ``condition`` (on ``key``) and differ between the sides."""
    old, new = f"variables.old{field.capitalize()}", f"variables.new{field.capitalize()}"
    return (
        f"({new}.filter(key, ({condition}) && !(key in {old} && {old}[key] == {new}[key]))"
        f" + {old}.filter(key, ({condition}) && !(key in {new})))"
    )


def shown(side: str, key: str) -> str:
    """Return CEL for the value of a key of the annotations of a side (``old``, ``new``), cut for people, or none."""
    values = f"variables.{side}Annotations"
    value = f"{values}[{key}]"
    return (
        f"({key} in {values} ? '\"' + ({value}.size() > 64 ? {value}.substring(0, 48) + '...' : {value}) + '\"'"
        " : 'none')"
    )


def is_one_of(exact: Iterable[str], prefixes: Iterable[str], shapes: Iterable[tuple[str, str]] = ()) -> str:
    """Return CEL for whether ``key`` is one of these, begins with a prefix, or begins and ends as a shape has it."""
    begin = [f"key.startsWith({text(prefix)})" for prefix in prefixes]
    shaped = [f"key.startsWith({text(first)}) && key.endsWith({text(last)})" for first, last in shapes]
    return " || ".join([f"key in {texts(exact)}", *begin, *shaped])


def is_user(users: Iterable[str]) -> str:
    """Return CEL for whether the request comes from one of these users."""
    return f"request.userInfo.username in {texts(users)}"


def claim(name: str) -> str:
    """Return CEL for what the authenticator says of the user under a name: a list."""
    return f"request.userInfo.?extra[?{text(name)}].orValue([])"


def text(value: str) -> str:
    """Return a CEL string literal: JSON's escapes are CEL's as well."""
    return msgspec.json.encode(value).decode()


def texts(values: Iterable[str]) -> str:
    """Return a CEL list of strings."""
    return "[" + ", ".join(text(value) for value in values) + "]"


def rule(group: str, resources: Iterable[str], operations: list[str]) -> Manifest:
    """Return what a policy is asked about."""
    return {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources), "operations": operations}


def policy(
    name: str,
    *,
    rules: list[Manifest],
    conditions: dict[str, str],
    variables: dict[str, str],
    validations: list[tuple[str, str]],
) -> Manifest:
    """Return a policy; what it can't judge is refused. A validation is an expression and that of its message."""
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": _named(conditions),
            "variables": _named(variables),
            "validations": [
                {"expression": expression, "messageExpression": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    }


def _named(expressions: dict[str, str]) -> list[Manifest]:
    return [{"name": key, "expression": expression} for key, expression in expressions.items()]


def binding(name: str) -> Manifest:
    """Return the binding that puts a policy in force everywhere. It bears the policy's name."""
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

"""What the API server refuses in the spec of a pod besides its containers' resources, in its words.

Read from pkg/apis/core/validation of Kubernetes 1.36: volumes and their mounts, claims, node selectors, affinity, and
spreading. Each rule yields the field, without ``spec.``, and why. Values of other types than the API's are passed over:
they do not decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from simulator.apiserver.validation import key_problem, label_value_problem, name_problem

#: Field and why.
Problem = tuple[str, str]
Object = Mapping[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MISSING: Final = "Required value"
_VALUES: Final = f"{_MISSING}: must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES: Final = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE_VALUE: Final = f"{_MISSING}: must be specified single value when `operator` is 'Lt' or 'Gt'"
_EMPTY: Final = f"{_MISSING}: can not be empty"
_UNSATISFIED: Final = ("DoNotSchedule", "ScheduleAnyway")
#: Highest weight of a preference.
_MOST_WEIGHT: Final = 100


def problems(spec: Object) -> Iterator[Problem]:
    """Yield what is wrong with a spec."""
    yield from _of_volumes(spec)
    for field in ("initContainers", "containers"):
        for at, container in enumerate(_objects(spec.get(field))):
            yield from _of_container(spec, f"{field}[{at}]", container)
    yield from _of_labels("nodeSelector", spec.get("nodeSelector"))
    yield from _of_affinity(_object(spec.get("affinity")))
    for at, each in enumerate(_objects(spec.get("topologySpreadConstraints"))):
        yield from _of_spread(f"topologySpreadConstraints[{at}]", each)


# --- volumes and claims ----------------------------------------------------------------------------------------------
def _of_volumes(spec: Object) -> Iterator[Problem]:
    seen = set[str]()
    for at, volume in enumerate(_objects(spec.get("volumes"))):
        field, name = f"volumes[{at}].name", volume.get("name")
        if not name:
            yield field, _MISSING
        elif problem := name_problem(str(name), label=True):
            yield field, _invalid(name, problem)
        elif name in seen:
            yield field, f'Duplicate value: "{name}"'
        seen.add(str(name))


def _of_container(spec: Object, field: str, container: Object) -> Iterator[Problem]:
    volumes = _names(spec.get("volumes"))
    for kind, path in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
        paths = set[str]()
        for at, mount in enumerate(_objects(container.get(kind))):
            place, name, where = f"{field}.{kind}[{at}]", _text(mount.get("name")), _text(mount.get(path))
            if not name:
                yield f"{place}.name", _MISSING
            elif name not in volumes:
                yield f"{place}.name", f'Not found: "{name}"'
            if not where:
                yield f"{place}.{path}", _MISSING
            elif where in paths:
                yield f"{place}.{path}", _invalid(where, "must be unique")
            paths.add(where)
    claims = sorted(_names(spec.get("resourceClaims")))
    there = f": {', '.join(claims)}" if claims else " which is empty"
    for at, claim in enumerate(_objects(_object(container.get("resources")).get("claims"))):
        if claim.get("name") not in claims:
            why = f"must be one of the names in pod.spec.resourceClaims{there}"
            yield f"{field}.resources.claims[{at}]", f'Not found: "{claim.get("name")}": {why}'


# --- rules about nodes and pods --------------------------------------------------------------------------------------
def _of_affinity(affinity: Object) -> Iterator[Problem]:
    of_nodes, field = _object(affinity.get("nodeAffinity")), "affinity.nodeAffinity"
    if isinstance(required := of_nodes.get(_REQUIRED), Mapping):
        terms, place = _objects(required.get("nodeSelectorTerms")), f"{field}.{_REQUIRED}.nodeSelectorTerms"
        if not terms:
            yield place, f"{_MISSING}: must have at least one node selector term"
        for at, term in enumerate(terms):
            yield from _of_expressions(f"{place}[{at}]", term, of_nodes=True)
    for at, each in enumerate(_objects(of_nodes.get(_PREFERRED))):
        place = f"{field}.{_PREFERRED}[{at}]"
        yield from _of_weight(place, each)
        yield from _of_expressions(f"{place}.preference", _object(each.get("preference")), of_nodes=True, values=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        of_pods, field = _object(affinity.get(kind)), f"affinity.{kind}"
        for at, term in enumerate(_objects(of_pods.get(_REQUIRED))):
            yield from _of_term(f"{field}.{_REQUIRED}[{at}]", term)
        for at, each in enumerate(_objects(of_pods.get(_PREFERRED))):
            place = f"{field}.{_PREFERRED}[{at}]"
            yield from _of_weight(place, each)
            yield from _of_term(f"{place}.podAffinityTerm", _object(each.get("podAffinityTerm")))


def _of_weight(field: str, preferred: Object) -> Iterator[Problem]:
    weight = preferred.get("weight") or 0
    if type(weight) is int and not 0 < weight <= _MOST_WEIGHT:
        yield f"{field}.weight", f"Invalid value: {weight}: must be in the range 1-{_MOST_WEIGHT}"


def _of_term(field: str, term: Object) -> Iterator[Problem]:
    for kind in ("labelSelector", "namespaceSelector"):
        yield from selector_problems(f"{field}.{kind}", _object(term.get(kind)))
    yield from _of_topology_key(field, term)


def _of_topology_key(field: str, rule: Object) -> Iterator[Problem]:
    key = rule.get("topologyKey")
    if not key:
        yield f"{field}.topologyKey", _EMPTY
    elif problem := key_problem(str(key)):
        yield f"{field}.topologyKey", _invalid(key, problem)


def _of_spread(field: str, rule: Object) -> Iterator[Problem]:
    skew, when = rule.get("maxSkew") or 0, rule.get("whenUnsatisfiable")
    if type(skew) is int and skew <= 0:
        yield f"{field}.maxSkew", f"Invalid value: {skew}: must be greater than zero"
    yield from _of_topology_key(field, rule)
    if when not in _UNSATISFIED:
        allowed = ", ".join(f'"{each}"' for each in _UNSATISFIED)
        yield f"{field}.whenUnsatisfiable", f'Unsupported value: "{when or ""}": supported values: {allowed}'
    yield from selector_problems(f"{field}.labelSelector", _object(rule.get("labelSelector")))


# --- selectors -------------------------------------------------------------------------------------------------------
def selector_problems(field: str, selector: Object) -> Iterator[Problem]:
    """Yield what is wrong with a selector of labels."""
    yield from _of_labels(f"{field}.matchLabels", selector.get("matchLabels"))
    yield from _of_expressions(field, selector)


def _of_labels(field: str, labels: object) -> Iterator[Problem]:
    for key, value in _object(labels).items():
        if problem := key_problem(str(key)):
            yield field, _invalid(key, problem)
        if problem := label_value_problem(str(value)):
            yield field, _invalid(value, problem)


def _of_expressions(field: str, selector: Object, *, of_nodes: bool = False, values: bool = True) -> Iterator[Problem]:
    """Judge expressions: those that select nodes also compare numbers. ``values``: have to be those of labels."""
    for at, each in enumerate(_objects(selector.get("matchExpressions"))):
        place, listed = f"{field}.matchExpressions[{at}]", _listed(each.get("values"))
        yield from _of_operator(place, _text(each.get("operator")), listed, of_nodes=of_nodes)
        if problem := key_problem(str(each.get("key") or "")):
            yield f"{place}.key", _invalid(each.get("key") or "", problem)
        for number, value in enumerate(listed if values else ()):
            if problem := label_value_problem(str(value)):
                yield f"{place}.values[{number}]", _invalid(value, problem)


def _of_operator(field: str, operator: str, values: Sequence[object], *, of_nodes: bool) -> Iterator[Problem]:
    if operator in {"In", "NotIn"}:
        if not values:
            yield f"{field}.values", _VALUES
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            yield f"{field}.values", _NO_VALUES
    elif of_nodes and operator in {"Gt", "Lt"}:
        if len(values) != 1:
            yield f"{field}.values", _ONE_VALUE
    else:
        yield f"{field}.operator", _invalid(operator, "not a valid selector operator")


def _invalid(value: object, why: str) -> str:
    return f'Invalid value: "{value}": {why}'


def _text(value: object) -> str:
    return str(value) if value else ""


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _object(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Object]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _names(value: object) -> set[str]:
    return {str(each.get("name")) for each in _objects(value)}

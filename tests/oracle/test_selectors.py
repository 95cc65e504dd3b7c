"""Selectors have the answers that they have in kube-scheduler: true, false, or none."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.oracle.claims import ours
from tests.whole import seeds
from tools.kubeoracle.program import Oracle, Question

pytestmark = pytest.mark.oracle

_A: Final = 'device.attributes["gpu.example.com"]'
_C: Final = 'device.capacity["gpu.example.com"]'
_DEVICE: Final = {
    "name": "a",
    "attributes": {
        "model": {"string": "H100"},
        "index": {"int": 3},
        "nvlink": {"bool": True},
        "version": {"version": "1.10.0-rc.1"},
        "other.io/numa": {"int": 1},
    },
    "capacity": {"memory": {"value": "80Gi"}, "links": {"value": "2500m"}, "other.io/links": {"value": "4"}},
}
#: What expressions are made of: of each kind, the first have a value, the last have none, or another kind's.
_TEXTS: Final = [
    f"{_A}.model",
    "device.driver",
    "'h100'",
    "'H100'.lowerAscii()",
    f"{_A}.model.substring(1)",
    f"{_A}.missing",
]
_NUMBERS: Final = [
    f"{_A}.index",
    "3",
    "device.attributes['other.io'].numa",
    f"{_A}.index % 2",
    "1 / 0",
    f"{_A}.missing",
]
_TRUTHS: Final = [
    "true",
    f"{_A}.nvlink",
    "device.allowMultipleAllocations",
    f"has({_A}.model)",
    f"has({_A}.missing)",
    "has(device.attributes['none.io'].x)",
    "'other.io' in device.attributes",
    "'none.io' in device.attributes",
    f"'model' in {_A}",
    f"{_A}.exists(name, name == 'index')",
    f"{_A}.missing",
]
_AMOUNTS: Final = [
    f"{_C}.memory",
    f"{_C}.links",
    "quantity('80Gi')",
    "quantity('2.5')",
    f"{_C}.links.add(1)",
    "quantity('much')",
]
_VERSIONS: Final = [
    f"{_A}.version",
    "semver('1.10.0')",
    "semver('1.9.0')",
    "semver('v1.10', true)",
    "semver('1')",
    f"{_A}.missing",
]


def _expression(chance: random.Random, depth: int = 2) -> str:
    """A random expression that is true, false, or has no answer."""
    inner = [_expression(chance, depth - 1) for _ in range(2)] if depth else ["", ""]
    number, order = chance.choice(["0", "1", "-1"]), chance.choice(["==", "!=", "<", ">="])
    simple = [
        chance.choice(_TRUTHS),
        f"{chance.choice(_TEXTS)} {chance.choice(['==', '!='])} {chance.choice(_TEXTS)}",
        f"{chance.choice(_TEXTS)}.{chance.choice(['startsWith', 'contains', 'endsWith', 'matches'])}('100')",
        f"{chance.choice(_NUMBERS)} {order} {chance.choice(_NUMBERS)}",
        f"{chance.choice(_NUMBERS)} in [1, 3]",
        f"{chance.choice(_AMOUNTS)}.compareTo({chance.choice(_AMOUNTS)}) {order} {number}",
        f"{chance.choice(_AMOUNTS)}.{chance.choice(['isLessThan', 'isGreaterThan'])}({chance.choice(_AMOUNTS)})",
        f"{chance.choice(_AMOUNTS)}.sub({chance.choice(_AMOUNTS)}).compareTo({chance.choice(_AMOUNTS)}) {order} 0",
        f"{_C}.links {chance.choice(['==', '!='])} quantity('{chance.choice(['2500m', '2.5', '3'])}')",
        f"{chance.choice(_AMOUNTS)}.isInteger() && {chance.choice(_AMOUNTS)}.asInteger() {order} 3",
        f"sign({chance.choice(_AMOUNTS)}) {order} {number}",
        f"{chance.choice(_VERSIONS)}.compareTo({chance.choice(_VERSIONS)}) {order} {number}",
        f"{chance.choice(_VERSIONS)}.{chance.choice(['isLessThan', 'isGreaterThan'])}({chance.choice(_VERSIONS)})",
        f"{chance.choice(_VERSIONS)}.{chance.choice(['major', 'minor', 'patch'])}() {order} 1",
        f"isSemver({chance.choice(_TEXTS)}) || isQuantity({chance.choice(_TEXTS)})",
    ]
    nested = [
        f"({inner[0]}) && ({inner[1]})",
        f"({inner[0]}) || ({inner[1]})",
        f"!({inner[0]})",
        f"({inner[0]}) ? ({inner[1]}) : ({inner[0]})",
    ]
    return chance.choice(simple if not depth or chance.random() < 0.4 else nested)


def _question(expression: str) -> Question:
    named = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": named, "nodeName": "n", "devices": [_DEVICE]}
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": {**exactly, "selectors": [{"cel": {"expression": expression}}]}}
    devices: dict[str, Any] = {
        "slices": [{"metadata": {"name": "s"}, "spec": spec}],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "allocated": [],
        "claims": [
            {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {"devices": {"requests": [request]}}}
        ],
    }
    return {"nodes": [{"metadata": {"name": "n", "labels": {}}}], "devices": devices}


def _theirs(oracle: Oracle, expressions: list[str]) -> list[tuple[str, str]]:
    """``in``, ``out``, or ``none`` for an expression without an answer; and what is said of it."""
    said = []
    for answer in oracle.ask(map(_question, expressions)):
        texts = " ".join((answer.why or {})["n"].reasons or ()) if answer.why else ""
        if "compile error" in texts:
            said.append(("refused", texts))
        else:
            said.append(("in" if answer.feasible else "none" if "runtime error" in texts else "out", texts))
    return said


#: What is said of an expression that is not evaluated for its costs.
_TOO_LONG: Final = "it may take more than"


def _mine(expression: str) -> tuple[str, str]:
    why = ours(_question(expression))["n"]
    return ("in" if not why else "none" if why.startswith("SELECTOR_FAILED") else "out"), why


def _loops(chance: random.Random, depth: int = 3, *, binds: bool, names: tuple[str, ...] = ()) -> str:
    """A random expression of loops over lists and maps, or of variables: the library can't do both (claims/cel.py)."""

    def inner(*more: str) -> str:
        return _loops(chance, depth - 1, binds=binds, names=(*names, *more))

    number = [f"{_A}.index", "1", "2", "3", *names]
    simple = f"{chance.choice(number)} {chance.choice(['==', '!=', '<', '>='])} {chance.choice(number)}"
    if not depth or chance.random() < 0.15:
        return simple
    if chance.random() < 0.4:
        forms = [
            f"({inner()}) && ({inner()})",
            f"({inner()}) || !({inner()})",
            f"({inner()}) ? ({inner()}) : ({inner()})",
        ]
        return chance.choice(forms)
    name = f"v{len(names)}"
    if binds:
        bound, body = chance.choice(number), inner(name)
        return chance.choice(
            [f"cel.bind({name}, {bound}, {body})", f"optional.of({bound}).optMap({name}, {body}).orValue(false)"]
        )
    listed = chance.choice(["[1, 2, 3]", "[3]", "[1, 2, 3].filter(z, z > 1)", "[1, 2].map(z, z + 1)"])
    return chance.choice(
        [
            f"{listed}.{chance.choice(['exists', 'all', 'exists_one'])}({name}, {inner(name)})",
            f"{listed}.filter({name}, {inner(name)}).size() > {chance.choice('012')}",
            f"{_A}.{chance.choice(['exists', 'all'])}(k, k == '{chance.choice(['model', 'none'])}' && ({inner()}))",
        ]
    )


_KINDS: Final[dict[str, Callable[[random.Random], str]]] = {
    "values": _expression,
    "loops": partial(_loops, binds=False),
    "variables": partial(_loops, binds=True),
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", seeds(3))
def test_random_expressions_have_the_same_answers(oracle: Oracle, seed: int, kind: str) -> None:
    chance = random.Random(seed)
    expressions = [_KINDS[kind](chance) for _ in range(500)]
    theirs = [each for start in range(0, 500, 16) for each in _theirs(oracle, expressions[start : start + 16])]
    different = [
        (expression, said, mine)
        for expression, said in zip(expressions, theirs, strict=True)
        # What the API server refuses comes to nobody; what may take too long, as loops in loops, is not evaluated here.
        if said[0] != "refused" and said[0] != (mine := _mine(expression))[0] and _TOO_LONG not in mine[1]
    ]
    assert not different
    answers = [each for each, _ in theirs]
    assert min(answers.count(each) for each in ("in", "out", *(["none"] if kind == "values" else []))) > 50


@pytest.mark.parametrize(
    ("expression", "theirs", "mine"),
    [
        # Sums are of another type there, which is equal to none.
        (f"{_C}.links.add(1) == {_C}.links.add(1)", "none", "in"),
        # A version and a text can't be compared there.
        (f"{_A}.version == '1.10.0'", "none", "out"),
        # Numbers of two kinds, sets, sorted lists, addresses: the library has none of them.
        ("1.5 < 2", "in", "none"),
        ("sets.contains([1, 2], [1])", "in", "none"),
        ("[1, 2].isSorted()", "in", "none"),
        ("ip('10.0.0.1').family() == 4", "in", "none"),
        # Costs: at most 32 x 32 turns, where the device has far fewer attributes.
        (f"{_A}.exists(k, {_A}.exists(l, k == 'model' && l == 'index'))", "in", "none"),
        # A variable beside a loop, which the library answers wrongly.
        (f"{_A}.exists(n, n == 'index') && cel.bind(x, {_A}.index, x == 3)", "in", "none"),
    ],
)
def test_some_expressions_have_other_answers_on_purpose(
    oracle: Oracle, expression: str, theirs: str, mine: str
) -> None:
    ((there, _),) = _theirs(oracle, [expression])
    assert (there, _mine(expression)[0]) == (theirs, mine)

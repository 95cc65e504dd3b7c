"""Mutants of a module: the same source with one small defect, such as ``<`` for ``<=`` or a call that is left out.

Only code inside functions is mutated. Annotations, docstrings, log lines, assertions (``zip``'s ``strict`` is one) and
f-strings are left alone: a defect there changes no behaviour, or has no position in the source (f-strings before
Python 3.12).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS: Final = {"max": "min", "min": "max", "any": "all", "all": "any"}
_LOGGERS: Final = frozenset({"_log", "log", "logger"})


class Mutant(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One defect: the bytes from (line, column) to (end_line, end_column) become ``after``. Lines count from 1.

    ``text``: the source line on which it begins.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str
    text: str

    def applied(self, source: bytes) -> bytes:
        """The source with the defect."""
        lines = source.split(b"\n")
        head = lines[self.line - 1][: self.column]
        tail = lines[self.end_line - 1][self.end_column :]
        changed = head + self.after.encode() + tail
        return b"\n".join([*lines[: self.line - 1], changed, *lines[self.end_line :]])


def mutants(root: Path, path: str) -> list[Mutant]:
    """All mutants of the module at ``path`` below ``root``, in the order of the source. Raises SyntaxError."""
    source = (root / path).read_bytes()
    return sorted(_Search(path, source.decode()).found(ast.parse(source)))


class _Search:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        self._lines = source.split("\n")

    def found(self, tree: ast.AST) -> Iterator[Mutant]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in node.body:
                    yield from self._within(statement)

    def _within(self, node: ast.AST) -> Iterator[Mutant]:
        """Mutants of a node and all below it, but for functions, which are searched by themselves."""
        passed = ast.JoinedStr | ast.Assert | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, passed) or _is_silent(node) or _is_strict(node):
            return
        for changed in _changes(node):
            yield self._mutant(node, changed)
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._within(child)

    def _mutant(self, node: ast.AST, changed: ast.AST) -> Mutant:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = ast.unparse(changed)
        return Mutant(
            path=self._path,
            line=node.lineno,
            column=node.col_offset,
            end_line=node.end_lineno,
            end_column=node.end_col_offset,
            before=" ".join((ast.get_source_segment(self._source, node) or "").split()),
            after=f"({text})" if isinstance(changed, ast.expr) else text,
            text=self._lines[node.lineno - 1].strip(),
        )


def _is_silent(node: ast.AST) -> bool:
    """Whether a statement is a docstring or writes a log line."""
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    if isinstance(value, ast.Constant):
        return True
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _LOGGERS


def _is_strict(node: ast.AST) -> bool:
    """Whether a node is the ``strict`` of a ``zip``: it says that both are of one length, as an assertion would."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The node with a defect, once for each that it can have."""
    yield from _changed_operators(node)
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield _with(node, func=ast.Name(_CALLS[name], ast.Load()))
        case ast.IfExp(test=test):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case _:
            return


def _changed_operators(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator]):
            yield _with(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            yield _with(node, op=_OPERATORS[type(operator)]())
        case _:
            return


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed

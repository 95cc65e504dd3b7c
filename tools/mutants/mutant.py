"""Mutants of a module, and whether the tests find them.

A mutant is the same source with one small defect, such as ``<`` for ``<=`` or a call that is left out. Only code inside
functions is mutated. Annotations, docstrings, log lines, assertions (``zip``'s ``strict`` is one) and f-strings are
left alone: a defect there changes no behaviour, or has no position in the source (f-strings before Python 3.12).
"""

from __future__ import annotations

import ast
import copy
import enum
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


_MARKS: Final = "not cluster and not node and not helm and not browser"
#: pytest's line on a test that failed, or a module that could not be read.
_FAILED: Final = re.compile(rb"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)
#: pytest's exit code where nothing was collected.
_NO_TESTS: Final = 5
#: What is tested together with others, beside the tests of its own folder: the API server in memory answers as a real
#: one does, and admission asks every dialect.
_TESTED_IN: Final = {
    "simulator/apiserver": ("tests/contract",),
    "kube": ("tests/contract",),
    "gpu": ("tests/admission",),
}


class End(enum.Enum):
    """How a try ended."""

    FAILED = "a test failed"
    HUNG = "the tests did not end in time"
    SURVIVED = "survived"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Tests to run: their paths, what pytest selects by marks, and after which time they count as hung."""

    name: str
    paths: tuple[str, ...]
    marks: str = _MARKS
    limit_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant, at which stage, and which test failed first; "" where it survived all.

    ``test`` is "" too where tests hung or could not be read.
    """

    mutant: Mutant
    end: End
    stage: str = ""
    test: str = ""


def stages(root: Path, path: str, *, with_simulation: bool = True, near: bool = False) -> list[Stage]:
    """Those of a module: each later one is slower, and finds defects that only show in the whole.

    ``near``: the module's and its folder's only.
    """
    matching = _matching(root, path)
    package = path.partition("/")[0]
    folder = next(str(folder) for folder in Path(path).parents if (root / "tests" / folder).exists())
    found = [Stage(name="module", paths=matching, limit_s=180.0)] if matching else []
    marks = f"{_MARKS} and not thorough"
    if folder != package:
        found.append(Stage(name="folder", paths=_within(root, folder), marks=marks, limit_s=300.0))
        if near:
            return found
    found.append(Stage(name="package", paths=_within(root, package), marks=marks, limit_s=900.0))
    if with_simulation and not near:
        found.append(Stage(name="simulation", paths=("tests/simulation",), limit_s=3600.0))
    return found


def _within(root: Path, folder: str) -> tuple[str, ...]:
    elsewhere = (other for other in _TESTED_IN.get(folder, ()) if (root / other).exists())
    return (f"tests/{folder}", *elsewhere)


def _matching(root: Path, path: str) -> tuple[str, ...]:
    """The module's test file, and those of its package that import it."""
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imported = (f"from {module} import", f"import {module}\n", f"from {parent} import {name}\n")
    folder = root / "tests" / path.partition("/")[0]
    named = root / "tests" / Path(path).parent / f"test_{name}.py"
    found = [named] if named.is_file() else []
    found += [file for file in sorted(folder.rglob("test_*.py")) if any(i in file.read_text() for i in imported)]
    return tuple(dict.fromkeys(str(file.relative_to(root)) for file in found))


def copied(root: Path, to: Path) -> Path:
    """Copy what git tracks, and what it does not ignore, to a new folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, target = root / name, to / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return to


def tried(tree: Path, mutant: Mutant, run: Sequence[Stage]) -> Outcome:
    """Put the defect into a copied tree, run stages until one fails, and take it out again."""
    with _mutated(tree / mutant.path, mutant):
        for stage in run:
            end, test = _run(tree, stage)
            if end is not End.SURVIVED:
                return Outcome(mutant=mutant, end=end, stage=stage.name, test=test)
    return Outcome(mutant=mutant, end=End.SURVIVED)


@contextmanager
def _mutated(file: Path, mutant: Mutant) -> Iterator[None]:
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        file.write_bytes(source)


def _run(tree: Path, stage: Stage) -> tuple[End, str]:
    """How the tests end, and the one that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", stage.marks]
    # A process group of its own: what hangs is ended with all that it started.
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(
            [*command, *stage.paths],
            cwd=tree,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return End.HUNG, ""
        printed.seek(0)
        failed = _FAILED.search(printed.read())
    if code in {0, _NO_TESTS}:
        return End.SURVIVED, ""
    return End.FAILED, failed[1].decode() if failed else ""


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Hypothesis draws the same examples each time, and no compiled file of another mutant is taken for this one's."""
    return {**given, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}

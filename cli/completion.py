"""Completion for ``kubectl moorage``: kubectl asks the program ``kubectl_complete-moorage`` for what may come next.

It is given the words behind ``kubectl moorage``, the last one being what is typed so far, and answers with a line for
each candidate and a last line that says whether files will do as well, as the completions of cobra do. Commands and
options are read from the parser; names of nodes, pods, namespaces and contexts are asked of kubectl, which is quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cli import explain, inspect
from cli.commands import Parser, plugin_parser, shown
from runtime.options.selection import CLUSTER, GROUP, NODE, POD, QUEUE, SPELLINGS

#: cobra's directives: files as well, or nothing but what is printed.
_FILES: Final = ":0"
_NO_FILES: Final = ":4"
_NAMES_WITHIN_S: Final = 3.0
_FILE_OPTIONS: Final = frozenset({
    *("kubeconfig", "dialects", "filename", "ca_file", "token_file"),
    *("from_snapshot", "scheduler_config", "record", "plot"),
})  # fmt: skip
#: Options that say where kubectl is to look, too.
_WHERE: Final = frozenset({"--kubeconfig", "--context", "--cluster", "--server", "--as", "--namespace"})
_KUBECTL: Final = {
    "nodes": ("get", "nodes"),
    "pods": ("get", "pods"),
    "podgroups": ("get", "podgroups.scheduling.run.ai"),
    "queues": ("get", "queues.scheduling.run.ai"),
    "namespace": ("get", "namespaces"),
    "context": ("config", "get-contexts"),
}

#: Of commands that ask about objects: the kinds that are offered, and how they may be written.
_KINDS: Final = {
    inspect.NAME: ((CLUSTER, NODE, POD, GROUP, QUEUE), SPELLINGS),
    explain.NAME: ((POD, GROUP, NODE, QUEUE, explain.REASON), explain.SPELLINGS),
}

#: Asks kubectl for names of a kind, with the options that say where.
Names = Callable[[str, Sequence[str]], Sequence[str]]


class _Typed:
    """What stands before the word that is completed. No dataclass: those cost a shell 10 ms at each press of Tab."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.command = ""
        self.positionals: list[str] = []
        #: Options that say which cluster and namespace, with their values.
        self.where: list[str] = []
        #: An option that waits for its value.
        self.open: argparse.Action | None = None


def main() -> int:
    """Print candidates for the words of the command line."""
    for line in suggested(sys.argv[1:] or [""], ask=_ask_kubectl):
        print(line)
    return 0


def suggested(words: Sequence[str], *, ask: Names) -> list[str]:
    """Return the lines to print for these words."""
    *before, current = words
    typed = _typed(before)
    option, equals, value = current.partition("=")
    if equals and option.startswith("--"):
        found, directive = _values(_options(typed.parser).get(option), typed, ask)
        return [*(f"{option}={each}" for each in found if each.startswith(value)), directive]
    if typed.open is not None:
        found, directive = _values(typed.open, typed, ask)
    elif current.startswith("-"):
        found, directive = sorted(_options(typed.parser)), _NO_FILES
    else:
        found, directive = _positionals(typed, ask)
    return [*(each for each in found if each.startswith(current)), directive]


def _typed(before: Sequence[str]) -> _Typed:
    typed = _Typed(plugin_parser())
    for word in before:
        options = _options(typed.parser)
        if typed.open is not None:
            _note_where(typed, typed.open, word)
            typed.open = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            action = options.get(name)
            if equals and action is not None:
                _note_where(typed, action, value)
            elif action is not None and action.nargs != 0:
                typed.open = action
        elif not typed.positionals and word in _commands(typed.parser):
            typed.command, typed.parser = word, _commands(typed.parser)[word].filled()
        else:
            typed.positionals.append(word)
    return typed


def _note_where(typed: _Typed, action: argparse.Action, value: str) -> None:
    typed.where += [f"{option}={value}" for option in action.option_strings if option in _WHERE]


def _values(action: argparse.Action | None, typed: _Typed, ask: Names) -> tuple[Sequence[str], str]:
    """What an option may be set to."""
    if action is None:
        return (), _NO_FILES
    if action.dest in _FILE_OPTIONS:
        return (), _FILES
    if action.dest in _KUBECTL:
        return ask(action.dest, typed.where), _NO_FILES
    return [str(choice) for choice in action.choices or ()], _NO_FILES


def _positionals(typed: _Typed, ask: Names) -> tuple[Sequence[str], str]:
    if _commands(typed.parser):
        return sorted(_shown(typed.parser)), _NO_FILES
    if typed.command not in _KINDS:
        return (), _FILES
    offered, spellings = _KINDS[typed.command]
    if not typed.positionals:
        return offered, _NO_FILES
    what, *given = typed.positionals
    kind = spellings.get(what, "")
    if kind not in {NODE, POD, QUEUE, GROUP}:
        return (), _NO_FILES
    return [name for name in ask(f"{kind}s", typed.where) if name not in given], _NO_FILES


def _commands(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    return {name: sub for action in _actions(parser) for name, sub in _choices(action)}


def _shown(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The commands that help lists: not the old names of others."""
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as below
            yield from shown(action)


def _choices(action: argparse.Action) -> Iterator[tuple[str, Parser]]:
    if isinstance(action.choices, dict):
        yield from action.choices.items()


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        name: action
        for action in _actions(parser)
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
    }


def _actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    found: Any = parser._actions  # noqa: SLF001 - argparse tells what it was given nowhere else
    actions: Sequence[argparse.Action] = found
    return actions


def _ask_kubectl(kind: str, where: Sequence[str]) -> Sequence[str]:
    """Names as kubectl knows them; none where it can't tell them in time."""
    import shutil  # for those who ask a cluster
    import subprocess

    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return ()
    is_about_cluster = kind != "context"
    options = [*where, f"--request-timeout={_NAMES_WITHIN_S:g}s"] if is_about_cluster else where
    command = [kubectl, *_KUBECTL[kind], "-o", "name", *options]
    try:
        ended = subprocess.run(  # noqa: S603 - kubectl, with the rights of the user who types
            command, capture_output=True, text=True, check=False, timeout=_NAMES_WITHIN_S + 1
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return [line.rpartition("/")[2] if is_about_cluster else line for line in ended.stdout.splitlines()]

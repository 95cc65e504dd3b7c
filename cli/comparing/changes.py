"""Changes of a cluster as people write them for ``explain --what-if``, carried out as an administrator would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cli.refusing import BadInput
from scheduler.core.decide.changes import AnotherNode, AnotherQueue, Change, Cordoned, Drained, WithoutPods
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit, NotPossible, Subject
from scheduler.core.what_if.node_changes import Ended
from simulator.settling.shell import Shell

#: No group asks: the cluster is changed.
_NOBODY: Final = Subject(namespace="", name="", waiting=())
_FORMS: Final = (
    "limit QUEUE gpu=16, quota QUEUE gpu=16, weight QUEUE gpu=2, node +2 like NODE, drain NODE, cordon NODE, "
    "finish NAMESPACE/NAME"
)


def read(texts: Sequence[str]) -> list[Edit]:
    """Read changes. Raises BadInput for one that means nothing, or that concerns one group alone."""
    found = []
    for text in texts:
        try:
            edit = read_edit(text)
        except NotPossible as error:
            raise BadInput(f"--what-if {error}") from error
        if edit.is_own or (isinstance(edit, Ended) and not edit.namespace):
            raise BadInput(f"--what-if {text}: allowed are changes of the cluster: {_FORMS}")
        found.append(edit)
    return found


def carry_out(shell: Shell, edits: Sequence[Edit]) -> None:
    """Carry changes out one after the other. Raises BadInput for one that is not possible in this cluster."""
    for edit in edits:
        try:
            changes = edit.changes(shell.cluster.snapshot(), _NOBODY)
        except NotPossible as error:
            raise BadInput(f"--what-if {error}") from error
        for change in changes:
            _carry_out(shell, change)


def _carry_out(shell: Shell, change: Change) -> None:
    match change:
        case AnotherNode(node=node, slices=slices):
            shell.put_node(node, slices)
        case Cordoned(node=name):
            shell.cordon(name)
        case Drained(node=name):
            shell.drain(name)
        case AnotherQueue(queue=queue):
            shell.cluster.queues.records.put(queue)
        case WithoutPods(uids=uids):
            for uid in uids:
                shell.remove(uid)
        case _:
            raise TypeError(f"{change!r} is of no edit that {__name__}.read takes")

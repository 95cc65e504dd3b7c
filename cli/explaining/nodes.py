"""A node as people and programs read it: whether it takes pods, and what keeps those that wait off it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cli.explaining.views import NodeExplanation, ReasonView
from cli.inspection.sheets import Cell, Sheet
from scheduler.conditions.advice import link
from scheduler.conditions.messages import node_reason_text
from scheduler.core.what_if.explanation import NodeExplained


class Whole(msgspec.Struct, frozen=True):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    node: NodeExplanation
    unread: tuple[str, ...] = ()


def node_view(explained: NodeExplained) -> NodeExplanation:
    """Return all of it."""
    node = explained.node
    return NodeExplanation(
        name=node.name,
        message=_sentence(explained),
        is_ready=node.is_ready,
        is_cordoned=node.is_cordoned,
        waiting=explained.waiting,
        fits=explained.fits,
        taints=tuple(f"{each.key}={each.value}:{each.effect}" for each in node.taints),
        reasons=tuple(
            ReasonView(
                reason=each.reason.kind,
                resource=each.reason.resource,
                pods=each.pods,
                message=node_reason_text(each.reason).partition(" ")[2],
                help=link(each.reason.kind),
            )
            for each in explained.kept_off
        ),
        not_looked_at=explained.left_out,
    )


def _sentence(explained: NodeExplained) -> str:
    node = explained.node
    state = "is not ready" if not node.is_ready else "is cordoned" if node.is_cordoned else "takes pods"
    if not explained.waiting:
        return f"Node {node.name} {state}. No pod waits."
    fits = f"{explained.fits} of {explained.waiting} pods that wait would fit here alone"
    others = "; their queue, their gang or other pods keep them waiting" if explained.fits else ""
    return f"Node {node.name} {state}: {fits}{others}."


def node_sheets(view: NodeExplanation) -> Iterator[Sheet]:
    """The verdict, and pods by reason."""
    yield Sheet(title=view.message, columns=(), rows=())
    if view.taints:
        yield Sheet(title=f"Taints: {', '.join(view.taints)}", columns=(), rows=())
    if view.reasons:
        rows = [[Cell(str(each.pods)), Cell(each.message), Cell(each.help)] for each in view.reasons]
        title = "Pods that wait, by what keeps them off this node (a pod may have several):"
        yield Sheet(title=title, columns=("PODS", "REASON", "HELP"), rows=rows, spare=("HELP",), prose=("REASON",))
    if view.not_looked_at:
        yield Sheet(title=f"Not looked at: {view.not_looked_at} pods of rarer forms.", columns=(), rows=())

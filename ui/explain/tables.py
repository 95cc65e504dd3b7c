"""What explains a node, pod or PodGroup, from what the core says to words and tables, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from scheduler.conditions.advice import link
from scheduler.conditions.messages import node_reason_text, said_once, told
from scheduler.conditions.suggestion_messages import (
    BOUND_WORDS,
    KEPT_WORDS,
    below_minimum_text,
    edit_text,
    suggestion_text,
    time_text,
)
from scheduler.core.model.preemption import Bound, Found, NoVictims
from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.explanation import BelowMinimum, Explained, KnownNomination, NodeExplained
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.suggestions import Suggestion
from ui.explain.views import (
    BelowView,
    EditView,
    GroupView,
    HelpView,
    KeptView,
    NodeExplanation,
    NominationView,
    PreemptionView,
    ReasonView,
    VictimView,
)
from ui.queues.tables import amount, named
from ui.tables import Cell, Sheet

#: Victims that a table has.
_MOST_VICTIMS: Final = 20
_IDLE: Final = "Pods that hold shares and use next to none of them; nothing is evicted for that:"
_DOUBT: Final = ", unless something that was not read keeps it waiting"
#: What time alone ends.
_FOR_A_WHILE: Final = frozenset({Bound.DELAY, Bound.CLAIMS, Bound.GIVEN_UP})
_RULES: Final = {
    "reclaim": "its queue is above its fair share, and the other queue is below",
    "preempt": "its priority is lower, in the same queue",
    "consolidation": "it fits on another node, so that free devices come together",
}


# --- as data ---------------------------------------------------------------------------------------------------------
def group_view(
    explained: Explained, supposed: Sequence[Edit] = (), *, is_in_doubt: bool = False, sees_others: bool = True
) -> GroupView:
    """Return all of it. ``supposed``: edits on which it rests.

    ``is_in_doubt``: something that was not read may keep it waiting. ``sees_others``: the verdict may name objects of
    other namespaces.
    """
    subject, verdict = explained.trying.subject, explained.verdict
    group = subject.group
    created = min((pod.created for pod in subject.waiting), default="")
    view = GroupView(
        kind="Pod" if group is None else "PodGroup",
        namespace=subject.namespace,
        name=subject.name,
        queue=subject.queue,
        verdict=_code(explained),
        message=_sentence(explained, _DOUBT if is_in_doubt else "", sees_others=sees_others),
        starts=explained.outcome.starts and not explained.comes_later,
        waiting_since=created,
        waiting=len(subject.waiting),
        bound=len(subject.bound),
        required=1 if group is None else max(group.minimum, group.tree.fewest),
        supposed=tuple(map(_edit, supposed)),
        nodes=explained.nodes,
        node_reasons=tuple(
            ReasonView(
                reason=each.kind,
                resource=each.resource,
                nodes=each.nodes,
                message=node_reason_text(each),
                help=link(each.kind),
            )
            for each in (said_once(explained.node_reasons) if verdict is not None else ())
        ),
        queues=explained.queue,
        preemption=_preemption(explained),
        below_minimum=_below(explained.below),
        evictions=tuple(_nomination(each, explained) for each in explained.standing),
    )
    return with_helps(view, explained.helps, tried=explained.trying.tries)


def with_helps(view: GroupView, helps: Sequence[Suggestion], *, tried: int) -> GroupView:
    """Return the view with what would let the group start. ``tried``: decisions made to find it out."""
    wait = next((edit for each in helps for edit in each.edits if isinstance(edit, Wait)), None)
    return msgspec.structs.replace(
        view,
        helps=tuple(HelpView(message=suggestion_text(each), edits=tuple(map(_edit, each.edits))) for each in helps),
        starts_at_the_latest="" if wait is None else time_text(wait.until_s),
        tried=tried,
    )


def _below(gang: BelowMinimum | None) -> BelowView | None:
    if gang is None:
        return None
    return BelowView(
        message=below_minimum_text(gang),
        bound=gang.bound,
        minimum=gang.minimum,
        since=time_text(gang.since_s),
        until="" if gang.until_s is None else time_text(gang.until_s),
        seconds_left=gang.left_s,
        is_going=gang.is_going,
    )


def _edit(edit: Edit) -> EditView:
    return EditView(family=edit.family.value, message=edit_text(edit), what_if=edit.spelled())


def _code(explained: Explained) -> str:
    if explained.verdict is not None:
        return explained.verdict.code.value
    if not explained.trying.subject.waiting:
        return "Running"
    return "ComesLater" if explained.comes_later else "Starts"


def _sentence(explained: Explained, doubt: str, *, sees_others: bool) -> str:
    """The verdict in one sentence. ``doubt``: what comes after a start that is not sure."""
    subject = explained.trying.subject
    what = f"{'Pod' if subject.group is None else 'PodGroup'} {subject.namespace}/{subject.name}"
    if not subject.waiting:
        return f"{what} does not wait. Pods of it that have a node: {len(subject.bound)}."
    if explained.on_their_way:
        name, node = explained.on_their_way[0]
        return f"{what} does not wait: pod {name} is on its way to node {node}."
    if explained.outcome.starts:
        return f"{what} {_starting(explained)}{'' if explained.comes_later else doubt}."
    reader = None if sees_others else subject.namespace
    said = "" if explained.verdict is None else " ".join(told(explained.verdict, reader=reader).message.split())
    return f"{what} waits: {said}" if said else f"{what} waits."


def _starting(explained: Explained) -> str:
    """What comes before a group that fits, after its name."""
    outcome = explained.outcome
    victims = 0 if outcome.preemption is None else len(outcome.preemption.victims)
    evicted = f"{_count(victims, 'pod')} {'is' if victims == 1 else 'are'} evicted for it"
    if explained.comes_later:
        fits = f"could start if {evicted}" if victims else "fits now"
        return f"{fits}, but other groups that wait come first and would take the place"
    if victims:
        return f"starts when {evicted}"
    if outcome.frees_device:
        return "starts when an idle GPU reservation is removed; the scheduler does that"
    return f"fits now, on node {outcome.placed[0].node}: the scheduler's next decision places it"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _preemption(explained: Explained) -> PreemptionView | None:
    answer, snapshot = explained.preemption, explained.trying.snapshot
    match answer:
        case Found(action=action, units=units):
            uids = [uid for unit in units for uid in unit.pods]
            pods = [pod for uid in uids if (pod := snapshot.pod(uid)) is not None]
            victims = tuple(VictimView(namespace=pod.namespace, name=pod.name, node=pod.node) for pod in pods)
            message = f"Pods that may be evicted for it, and are enough: {len(victims)}"
            return PreemptionView(is_possible=True, message=message, rule=action.value, victims=victims)
        case NoVictims():
            kept = tuple(
                KeptView(
                    reason=each.why.value,
                    message=f"{_count(each.pods, 'pod')} {KEPT_WORDS[each.why]}",
                    pods=each.pods,
                    gpu_nano=each.nano_gpu,
                    until=time_text(each.until_s) if each.until_s else "",
                )
                for each in answer.kept
            )
            why = (
                "no pods were found whose eviction would free enough"
                if answer.bound is None
                else BOUND_WORDS[answer.bound]
            )
            until = f", until {time_text(answer.until_s)}" if answer.bound in _FOR_A_WHILE else ""
            return PreemptionView(is_possible=False, message=f"No pod is evicted for it: {why}{until}", kept=kept)
        case _ if not all(pod.may_evict for pod in explained.trying.subject.waiting):
            return PreemptionView(is_possible=False, message="No pod is evicted for it: its preemptionPolicy is Never")
        case _:
            return None


def _nomination(standing: KnownNomination, explained: Explained) -> NominationView:
    nomination, snapshot = standing.nomination, explained.trying.snapshot
    places = [pod for place in nomination.places if (pod := snapshot.pod(place.pod_uid)) is not None]
    name = nomination.pod_group or (places[0].name if places else "a pod that is gone")
    taker = f"{nomination.namespace}/{name}"
    whose = "for it" if standing.is_nominee else f"for {taker}"
    message = (
        f"Evicted {whose} ({nomination.action.value}: {_RULES[nomination.action.value]}), "
        f"{standing.gone} of {len(nomination.victims)} are gone"
    )
    return NominationView(
        rule=nomination.action.value,
        message=message,
        is_for_this=standing.is_nominee,
        for_group=taker,
        victims=tuple(
            VictimView(
                namespace=each.namespace, name=each.name, node=each.node, is_gone=snapshot.pod(each.pod_uid) is None
            )
            for each in nomination.victims
        ),
    )


# --- as tables -------------------------------------------------------------------------------------------------------
def group_sheets(view: GroupView) -> Iterator[Sheet]:
    """The verdict, and a table for each part that there is."""
    if view.supposed:
        yield _said(f"Suppose: {'; '.join(each.message for each in view.supposed)}.")
    yield _said(view.message)
    if view.below_minimum is not None:
        yield _said(view.below_minimum.message)
    if view.waiting:
        yield _said(_numbers(view))
    if view.node_reasons:
        rows = [[Cell(str(each.nodes)), Cell(_after(each.message, 1)), Cell(each.help)] for each in view.node_reasons]
        title = f"Nodes by reason, of {view.nodes} (a node may have several):"
        yield Sheet(title=title, columns=("NODES", "REASON", "HELP"), rows=rows, spare=("HELP",), prose=("REASON",))
    if view.queues:
        yield _queues(view)
    if view.preemption is not None:
        yield from _preemption_sheets(view.preemption)
    for each in view.evictions:
        yield _victims(f"{each.message}:", each.victims)
    yield from _helps(view)
    if view.idle:
        rows = [[Cell(each.message)] for each in view.idle]
        yield Sheet(title=_IDLE, columns=("IDLE",), rows=rows, prose=("IDLE",))


def _after(text: str, words: int) -> str:
    return text.split(" ", words)[words]


def _said(text: str) -> Sheet:
    return Sheet(title=text, columns=(), rows=())


def _numbers(view: GroupView) -> str:
    of = f", of which {view.required} are required" if view.required > 1 else ""
    since = f" The oldest pod was created at {view.waiting_since}." if view.waiting_since else ""
    has = f" Pods of it that have a node: {view.bound}." if view.bound else ""
    waits = f"{_count(view.waiting, 'pod')} wait{'s' * (view.waiting == 1)}"
    return f"{waits} in queue {view.queue or '(none)'}{of}.{has}{since}"


def _queues(view: GroupView) -> Sheet:
    rows = []
    for each in view.queues:
        at = DIMENSIONS.index(each.resource)
        style = "yellow" if each.passes else ""
        why = f"passes its {each.passes}" if each.passes else ""
        rows.append(
            [
                Cell(each.queue, style),
                Cell(each.resource),
                Cell(amount(at, each.holds, up=True)),
                Cell(named(at, each.adds, up=True)),
                Cell(amount(at, each.quota)),
                Cell(amount(at, each.fair_share, up=True)),
                Cell(amount(at, each.limit)),
                Cell(why, style),
            ]
        )
    columns = ("QUEUE", "RESOURCE", "ALLOCATED", "IT ADDS", "QUOTA", "FAIR SHARE", "LIMIT", "")
    return Sheet(title="Its queue:", columns=columns, rows=rows, spare=("FAIR SHARE",), folds=("QUEUE",))


def _preemption_sheets(room: PreemptionView) -> Iterator[Sheet]:
    if room.is_possible:
        yield _victims(f"{room.message} ({room.rule}: {_RULES[room.rule]}):", room.victims)
        return
    if not room.kept:
        yield _said(f"{room.message}.")
        return
    rows = [[Cell(str(each.pods)), Cell(_after(each.message, 2)), Cell(each.until)] for each in room.kept]
    columns = ("PODS", "WHY THEY STAY", "UNTIL")
    yield Sheet(title=f"{room.message}. What protects pods:", columns=columns, rows=rows, prose=("WHY THEY STAY",))


def _victims(title: str, victims: Sequence[VictimView]) -> Sheet:
    rows = [
        [Cell(f"{each.namespace}/{each.name}"), Cell(each.node), Cell("gone" if each.is_gone else "")]
        for each in victims[:_MOST_VICTIMS]
    ]
    if len(victims) > _MOST_VICTIMS:
        rows.append([Cell(f"and {len(victims) - _MOST_VICTIMS} more"), Cell(""), Cell("")])
    return Sheet(title=title, columns=("POD", "NODE", ""), rows=rows, folds=("POD",))


def _helps(view: GroupView) -> Iterator[Sheet]:
    if not view.waiting or view.starts or not view.tried:
        return
    if not view.helps:
        yield _said(f"No single change that was tried lets it start. Decisions tried: {view.tried}.")
        return
    rows = [
        [Cell(each.message), Cell(" ".join(f'--what-if "{edit.what_if}"' for edit in each.edits if edit.what_if))]
        for each in view.helps
    ]
    title = "Each of these, alone, lets it start; each was tried on the cluster as it is now:"
    yield Sheet(title=title, columns=("CHANGE", "TO TRY IT"), rows=rows, spare=("TO TRY IT",), prose=("CHANGE",))


class Whole(msgspec.Struct, frozen=True):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    node: NodeExplanation
    unread: tuple[str, ...] = ()


def node_view(explained: NodeExplained) -> NodeExplanation:
    """Return all of it. A pod has one of the reasons that have the same words."""
    node = explained.node
    pods = (msgspec.structs.replace(each.reason, nodes=each.pods) for each in explained.kept_off)
    kept_off = said_once(pods, of_pods=True)
    return NodeExplanation(
        name=node.name,
        message=_node_sentence(explained),
        is_ready=node.is_ready,
        is_cordoned=node.is_cordoned,
        waiting=explained.waiting,
        fits=explained.fits,
        taints=tuple(f"{each.key}={each.value}:{each.effect}" for each in node.taints),
        reasons=tuple(
            ReasonView(
                reason=each.kind,
                resource=each.resource,
                pods=each.nodes,
                message=node_reason_text(each).partition(" ")[2],
                help=link(each.kind),
            )
            for each in kept_off
        ),
        not_looked_at=explained.left_out,
    )


def _node_sentence(explained: NodeExplained) -> str:
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

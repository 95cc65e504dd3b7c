"""Pods that keep apart: required anti-affinity by node, read from the API objects by code of our own.

Only one form is read: terms about nodes whose selectors name labels and nothing else, for pods of the same namespace.
A pod with other rules about pods is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.facts import Json, PodFacts
from wire import names

Labels = Mapping[str, str]

_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def terms_of(spec: Json) -> list[Labels] | None:
    """Labels of the pods that a pod keeps off its node, by term; None for rules of another form."""
    affinity = spec.get("affinity") or {}
    rules = affinity.get("podAntiAffinity") or {}
    if set(affinity) - {"podAntiAffinity"} or set(rules) - {_TERMS}:
        return None
    found: list[Labels] = []
    for term in rules.get(_TERMS) or ():
        selector = term.get("labelSelector") or {}
        labels = selector.get("matchLabels") or {}
        is_plain = set(term) == {"labelSelector", "topologyKey"} and set(selector) == {"matchLabels"} and labels
        if not is_plain or term["topologyKey"] != names.HOSTNAME_LABEL:
            return None
        found.append(labels)
    return found


@dataclass(slots=True)
class Apart:
    """Where pods are that keep others off, or that others keep off.

    ``terms``: by node and namespace, those of the pods there; ``labels``: likewise, what the pods there have.
    """

    terms: dict[tuple[str, str], list[Labels]] = field(default_factory=dict)
    labels: dict[tuple[str, str], list[Labels]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[PodFacts]) -> Apart:
        """Read the pods that have nodes; those that have ended keep nobody off."""
        found = cls()
        for pod in pods:
            if pod.node and not pod.has_ended:
                at = (pod.node, pod.namespace)
                found.labels.setdefault(at, []).append(pod.labels)
                if terms := terms_of(pod.raw["spec"]):
                    found.terms.setdefault(at, []).extend(terms)
        return found

    def kept_from(self, pod: PodFacts) -> set[str]:
        """Nodes that its own terms keep a pod off, or those of others."""
        own = terms_of(pod.raw["spec"]) or []
        found = {node for node, labels in _in(pod.namespace, self.labels) if any(_takes(own, each) for each in labels)}
        return found | {node for node, terms in _in(pod.namespace, self.terms) if _takes(terms, pod.labels)}


def _in(namespace: str, known: Mapping[tuple[str, str], list[Labels]]) -> Iterator[tuple[str, list[Labels]]]:
    return ((node, found) for (node, at), found in known.items() if at == namespace)


def _takes(terms: Iterable[Labels], labels: Labels) -> bool:
    """Whether one of the terms is about a pod with these labels."""
    return any(term.items() <= labels.items() for term in terms)

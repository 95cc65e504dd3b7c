"""Whether the places that an intent keeps are still in the domains that its gang requires.

They were when it was made. Until its victims are gone a node may get other labels, the Topology or the PodGroup may
change, and pods of the gang may come to run somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.core.decide.place_bounds import PlaceBound
from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.nodes.table import Int64s
from scheduler.core.topology.topologies import Domain


def are_in_domains(
    tree: MinimumTree, bounds: Mapping[int, PlaceBound], places: Iterable[tuple[str, int | None]]
) -> bool:
    """Whether these pods would be in one required domain with each other, and in one where others run.

    ``places``: subgroups and positions; None: the node is not there. ``bounds``: by the node of ``tree``.
    """
    required = {node: bound for node, bound in bounds.items() if bound.required}
    if not required:
        return True
    numbers, in_order = tree.numbers(), dict[int, Int64s]()
    found: dict[int, set[Domain | None]] = {}
    for subgroup, position in places:
        node = numbers.get(subgroup, 0)
        while True:
            if (bound := required.get(node)) is not None:
                if id(bound.tree) not in in_order:
                    in_order[id(bound.tree)] = bound.tree.places()
                place = None if position is None else int(in_order[id(bound.tree)][position])
                domain = None if place is None else bound.tree.domain_of(place, bound.required)
                found.setdefault(node, set()).add(domain)
            if not node:
                break
            node = tree.parents[node]
    return all(_is_one(required[node], domains) for node, domains in found.items())


def _is_one(bound: PlaceBound, domains: set[Domain | None]) -> bool:
    held = {*bound.held_by(bound.required)}
    return None not in domains and (domains <= held if held else len(domains) == 1)

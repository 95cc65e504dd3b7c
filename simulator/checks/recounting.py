"""S12, node by node: a recount from API objects that is repeated only for the nodes whose objects changed.

A comparison of a ledger with every pod of a large cluster costs as much as the run that it watches. What is used of a
node follows from the node and the pods that name it (simulator/checks/counting.py), so it stays true until one of them
changes. A row of the ledger is compared again when it is not the row that agreed with the same count before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simulator.checks import counting
from simulator.checks.counting import NodeFacts, NodeUse
from simulator.checks.ledgers import Ledger, Row, differences
from simulator.facts import PodFacts


class Recount:
    """The counts of all nodes; the three mappings are the checker's and change under it.

    ``live``: pods by UID; ``on_node``: node -> UIDs of the pods that name it; ``nodes``: nodes by name.
    """

    def __init__(
        self, live: Mapping[str, PodFacts], on_node: Mapping[str, Mapping[str, None]], nodes: Mapping[str, NodeFacts]
    ) -> None:
        self._live = live
        self._on_node = on_node
        self._nodes = nodes
        self._used: dict[str, NodeUse] = {}
        #: Scheduler -> node -> the row that agreed with the present count.
        self._agreed: dict[str, dict[str, Row]] = {}

    def changed(self, node: str) -> None:
        """Count a node again: it changed, or a pod that names it did."""
        self._used.pop(node, None)
        for rows in self._agreed.values():
            rows.pop(node, None)

    def use(self, node: str) -> NodeUse:
        """Return what is used of a node."""
        use = self._used.get(node)
        if use is None:
            use = counting.count_node([self._live[uid] for uid in self._on_node.get(node, ())])
            self._used[node] = use
        return use

    def differences(self, ledger: Ledger) -> Iterator[str]:
        """Yield where a ledger differs from the count."""
        rows, nodes = ledger.rows, self._nodes
        if rows.keys() != nodes.keys():
            yield f"its nodes are {sorted(rows)}, there are {sorted(nodes)}"
        agreed = self._agreed.setdefault(ledger.scheduler, {})
        for name in sorted(name for name, row in rows.items() if name in nodes and agreed.get(name) != row):
            found = list(differences(rows[name], nodes[name], self.use(name), ledger.caps.get(name, {})))
            if not found:
                agreed[name] = rows[name]
            yield from found

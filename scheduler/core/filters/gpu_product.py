"""Products of GPUs that a pod takes, or does not take (gpu/translation.py, Cards)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord
from wire import names

Products = tuple[tuple[str, ...], tuple[str, ...]]


class GpuProduct(Filter):
    """The node's label of its GPUs' product."""

    kind = "cards"
    words = "node(s) have GPUs of a product that the Pod does not accept, or no product label"

    @override
    def asked(self, constraints: Constraints) -> Products | None:
        """Products of which one has to be there, and those of which none may be."""
        asked = (constraints.products, constraints.not_products)
        return asked if any(asked) else None

    @override
    def admits(self, node: NodeRecord, asked: Products) -> bool:
        """Whether the product's name contains one that is asked. Blanks and hyphens are one: labels hold no blanks."""
        product = _plain(node.labels.get(names.NODE_GPU_PRODUCT, ""))
        wanted, unwanted = asked
        is_wanted = not wanted or any(_plain(part) in product for part in wanted)
        return bool(product) and is_wanted and not any(_plain(part) in product for part in unwanted)

    @override
    def effort(self, asked: Products) -> int:
        """Each name is compared."""
        return sum(map(len, asked))

    @override
    def reads(self, node: NodeRecord) -> object:
        """The label."""
        return node.labels.get(names.NODE_GPU_PRODUCT, "")


def _plain(product: str) -> str:
    return product.lower().replace(" ", "-")

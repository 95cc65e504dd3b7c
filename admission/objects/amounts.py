"""Quotas and limits as exact amounts, so that three tenths of a GPU are not more than 0.3."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import msgspec

from wire.crds.queue import UNLIMITED


class Amount(msgspec.Struct, frozen=True):
    """A sum of quotas: the decimals that they print as, and how many of them are unlimited."""

    finite: Fraction = Fraction()
    unlimited: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.finite + other.finite, self.unlimited + other.unlimited)

    def __sub__(self, other: Amount) -> Amount:
        """Take one out again that was added before."""
        return Amount(self.finite - other.finite, self.unlimited - other.unlimited)

    def exceeds(self, most: Amount) -> bool:
        """Whether it is more: nothing exceeds what is unlimited, and what is unlimited exceeds all else, as in KAI."""
        return not most.unlimited and (self.unlimited > 0 or self.finite > most.finite)

    def text(self) -> str:
        """As KAI writes it: without exponent and trailing zeros."""
        if self.unlimited:
            return "unlimited"
        if self.finite.denominator == 1:
            return str(self.finite.numerator)
        return format(Decimal(self.finite.numerator) / Decimal(self.finite.denominator), "f")


NOTHING = Amount()


def amount(value: float | None) -> Amount:
    """Read a number of the wire; one without meaning counts as 0."""
    if value == UNLIMITED:
        return Amount(unlimited=1)
    return Amount(Fraction(repr(value))) if value is not None and math.isfinite(value) and value > 0 else NOTHING

"""Whether long tests run whole: ``MOORAGE_WHOLE=1``, as in ``make nightly``. ``make test`` runs a slice of them."""

from __future__ import annotations

import os
from typing import Final

IS_WHOLE: Final = bool(os.environ.get("MOORAGE_WHOLE"))

"""All rows of the translation table, of whichever test module: the pod, and the settings that it is read with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gpu.dialects.settings import DialectSettings, HamiSettings
from tests.gpu.dialects import (
    test_aliyun,
    test_clearml,
    test_hami,
    test_koordinator,
    test_metagpu,
    test_nvfractions,
    test_replicas,
    test_volcano,
)
from tests.gpu.dialects.pods import asking
from tests.gpu.dialects.rows import Row
from tests.gpu.translate import test_combine
from wire.core import Pod

_MODULES = (
    test_aliyun,
    test_clearml,
    test_combine,
    test_hami,
    test_koordinator,
    test_metagpu,
    test_nvfractions,
    test_replicas,
    test_volcano,
)
_ID = re.compile(r"([A-Z][0-9]+)\b")
_NO_DEVICES = DialectSettings(hami=HamiSettings(default_gpus=0))


@dataclass(frozen=True)
class Case:
    """``name`` starts with the id of the row."""

    name: str
    pod: Pod
    settings: DialectSettings = DialectSettings()  # noqa: RUF009 - frozen

    @property
    def row(self) -> str:
        found = _ID.match(self.name)
        return found[1] if found else ""


def every_row() -> list[Case]:
    """One case for each pod of the tables; those that say the same twice stand once."""
    found: dict[bytes, Case] = {}
    for case in (*_of_tests(), *_of_lists(), *_of_kai(), *_of_others()):
        found.setdefault(msgspec.json.encode((case.pod, case.settings)), case)
    counts = Counter[str]()
    distinct = []
    for case in found.values():
        counts[case.name] += 1
        number = counts[case.name]
        distinct.append(replace(case, name=f"{case.name} ({number})") if number > 1 else case)
    return distinct


def _of_tests() -> Iterator[Case]:
    """Rows, and pods under the id of a row, that some test is parametrized with."""
    for module in _MODULES:
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "parametrize":
                    yield from (case for values in mark.args[1] if (case := _of_values(values)) is not None)


def _of_values(parameters: Any) -> Case | None:
    values: Sequence[Any] = getattr(parameters, "values", ())
    if callable(values):
        return None
    for value in values:
        if isinstance(value, Row):
            return Case(value.name, value.pod, value.settings)
        if isinstance(value, Pod) and _ID.match(parameters.id or ""):
            settings = [each for each in values if isinstance(each, DialectSettings)]
            return Case(parameters.id, value, *settings)
    return None


def _of_lists() -> Iterator[Case]:
    hami: Sequence[Any] = test_hami.REFUSED
    koordinator: Sequence[Any] = test_koordinator.REFUSED
    volcano: Sequence[Any] = test_volcano.REFUSED
    nvfractions: Sequence[Any] = (*test_nvfractions.SHARES, *test_nvfractions.REFUSED)
    for name, limits, *_ in hami:
        yield Case(name, asking(limits), _NO_DEVICES if name == "H2-off" else DialectSettings())
    for name, limits, *_ in koordinator:
        yield Case(name, asking(*limits))
    for name, _, limits, *_ in volcano:
        yield Case(name, asking(limits))
    for name, said, *_ in nvfractions:
        yield Case(name, test_nvfractions.annotated(said))


_KAI: tuple[tuple[str, dict[str, str]], ...] = (
    ("K1", {"gpu-fraction": "0.5"}),
    ("K2", {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
    ("K3", {"gpu-memory": "2000"}),
    ("K4 more than any card (waits)", {"gpu-memory": "2000000"}),
    *((f"K5 {text}", {"gpu-fraction": text}) for text in ("1", "1.0", "1.5", "0", "-0.5", "NaN", "0x1p-1", "half")),
    *((f"K6 {text}", {"gpu-memory": text}) for text in ("2000Mi", "0", "-1", "1.5")),
    ("K7 both", {"gpu-fraction": "0.5", "gpu-memory": "2000"}),
    ("K8 devices without a share", {"gpu-fraction-num-devices": "2"}),
    ("K9", {"gpu-fraction": "0.5", "gpu-fraction-container-name": "load"}),
    ("K9 unknown", {"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}),
    ("K10", {"gpu-fraction": "0.5", "gpu-fraction-container-type": "InitContainer"}),
    ("K11", {"gpu-fraction": "0.0625"}),
)


def _of_kai() -> Iterator[Case]:
    for name, said in _KAI:
        yield Case(name, asking({}, {}, init=[{}], annotations=said))
    yield Case("K7 beside a whole GPU", asking({"nvidia.com/gpu": 1}, annotations={"gpu-memory": "5"}))
    yield Case("K12 in text", asking({"nvidia.com/gpu": "2000m"}))
    yield Case("K12", asking({"nvidia.com/gpu": 2}))


def _of_others() -> Iterator[Case]:
    """Rows that the modules' own tests show by other means than pods in a list."""
    yield Case("F10", test_nvfractions.annotated({test_nvfractions.REQUEST: "1Gi"}, {}, {"nvidia.com/gpu": 1}))
    sliced: dict[str, Any] = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
    yield Case("V8", asking(sliced, annotations={"volcano.sh/vgpu-mode": "mps", "nvidia.com/use-gputype": "A100"}))
    yield Case("V8 nobody's mode", asking(sliced, annotations={"volcano.sh/vgpu-mode": "x"}))
    half: dict[str, Any] = {"koordinator.sh/gpu": 50}
    for provider in ("HAMi-core", "x"):
        yield Case(f"O13 {provider}", asking(half, labels={"koordinator.sh/gpu-isolation-provider": provider}))
    yield Case("O14", asking(half, annotations={"scheduling.koordinator.sh/device-allocate-hint": "{}"}))
    yield Case("O9", asking({"koordinator.sh/rdma": 1}))
    yield Case("T2", asking({"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 50}))

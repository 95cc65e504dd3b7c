"""The way back: what a pod asks, said in the words of another system, where that has words for it.

Each system has a function that proposes words for a request; it need not know all that its words can't carry. What is
proposed is read again by the very code that reads pods of that system, and is said only if nothing is lost: the same
asks of the same containers, on the same cards, with all wishes and alternatives. If not, the answer is what could not
be said. A system whose words always say more (HAMi's cap memory) may add that, and one that knows no preference for
placement may leave that out: the answer names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu import record
from gpu.asked import KAI, PLAIN
from gpu.dialects import aliyun, clearml, combine, hami, koordinator, metagpu, nvfractions, sayings, volcano
from gpu.dialects.plugin import containers
from gpu.dialects.sayings import Unsayable, Words
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Refusal, told
from gpu.translation import Translation
from wire.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The words; what they say beyond what was asked, and what they leave out: fields of the record, values as JSON."""

    words: Words
    adds: Mapping[str, str] = {}
    leaves: Mapping[str, str] = {}


_SAYERS: Final[Mapping[str, Callable[[Translation], Words | Unsayable]]] = {
    KAI: sayings.kai,
    PLAIN: sayings.plugin,
    clearml.NAME: sayings.clearml,
    aliyun.NAME: sayings.aliyun,
    metagpu.NAME: sayings.metagpu,
    nvfractions.NAME: sayings.nvfractions,
    hami.NAME: sayings.hami,
    volcano.NAME: sayings.volcano,
    koordinator.NAME: sayings.koordinator,
}
#: Systems in whose words a request can be said.
TARGETS: Final = tuple(sorted(_SAYERS))

#: What words of a system may say beyond what was asked: nothing that changes what the pod gets.
_HARMLESS: Final = frozenset({"strategy", "wishes.memoryCap", "wishes.computeCap", "wishes.mode"})
#: What words may leave out: where a pod would rather be, where both places give it the same.
_DISPENSABLE: Final = frozenset({"strategy"})
#: Of the record: about how it was said, and not what.
_MANNER: Final = frozenset({"version", "dialect", "notes", "unit"})


def say(translation: Translation, spec: PodSpec, target: str) -> Said | Unsayable:
    """Say what a pod of this spec asks in the words of ``target``, one of TARGETS, with its default settings."""
    words = _SAYERS[target](translation)
    if isinstance(words, Unsayable):
        return words
    read = combine.translate(_pod(words, spec), DialectSettings())
    if isinstance(read, Refusal):
        return Unsayable(field="asks", value=told(read))
    wanted, got = dict(_fields(translation)), dict(_fields(read))
    leaves = {field: value for field, value in wanted.items() if field in _DISPENSABLE and field not in got}
    for field, value in wanted.items():
        if got.get(field) != value and field not in leaves:
            return Unsayable(field=field, value=value)
    adds = {field: value for field, value in got.items() if field not in wanted}
    beyond = next((field for field in adds if field not in _HARMLESS), "")
    return Unsayable(field=beyond, value="") if beyond else Said(words=words, adds=adds, leaves=leaves)


def _pod(words: Words, spec: PodSpec) -> Pod:
    """A pod of this spec that says these words and no others."""
    made: dict[str, list[Container]] = {"c": [], "i": []}
    for ref, container in containers(spec):
        limits: dict[str, str | int | float] = {
            name: str(amount) for name, amount in words.limits.get(ref.key, {}).items()
        }
        plain = Container(
            name=container.name,
            restart_policy=container.restart_policy,
            resources=ResourceRequirements(limits=limits or None),
        )
        made[ref.kind.value].append(plain)
    metadata = ObjectMeta(labels=dict(words.labels) or None, annotations=dict(words.annotations) or None)
    return Pod(metadata=metadata, spec=PodSpec(containers=made["c"], init_containers=made["i"] or None))


def _fields(translation: Translation) -> Iterator[tuple[str, str]]:
    """All fields of the record that say what is asked, by their path, with their values as JSON."""
    decoded: dict[str, Any] = msgspec.json.decode(record.render(translation))
    yield from _flat({name: value for name, value in decoded.items() if name not in _MANNER}, "")


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, msgspec.json.encode(value).decode()

"""``moorage translate``: the GPU requests of manifests, in every dialect (docs/translate.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu import messages, record
from gpu.device_plugin import containers
from gpu.dialects.settings import DialectSettings
from gpu.manifests import MALFORMED
from gpu.translation import Refusal, Translation, told
from runtime import manifests
from runtime.manifests import FoundPod, understood
from runtime.output import Progress, write
from runtime.text import line

#: The target that needs no saying: the record.
NATIVE: Final = "native"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What admission does to a container: a count of a resource, or None to take it out; or a variable."""

    container: str
    resource: str = ""
    count: int | None = None
    variable: str = ""
    value: str = ""


class InWords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same in the words of ``dialect``: what to write, by container name; or which field has none there.

    ``adds`` and ``leaves``: fields of the record, with values as JSON, that the words say beyond it, or leave out.
    """

    dialect: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    limits: Mapping[str, Mapping[str, int | str]] = {}
    adds: Mapping[str, str] = {}
    leaves: Mapping[str, str] = {}
    unsaid: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod. ``record``: the native form (docs/reference/record.md). ``refused``: the words of admission."""

    file: str
    document: int
    path: str = ""
    kind: str
    namespace: str
    name: str
    dialect: str = ""
    record: msgspec.Raw | None = None
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    said: InWords | None = None
    refused: str = ""
    refusal: Refusal | None = None


def run(
    files: Sequence[str],
    *,
    output: str,
    settings: DialectSettings,
    to: str = NATIVE,
    progress: Progress | None = None,
) -> int:
    """Translate and print; return 1 if a pod is refused, or can't be said in the words of ``to``. Raises BadInput."""
    progress = progress or Progress()
    pods = manifests.read(files, progress)
    made: list[Translation | Refusal | str] = []
    for pod in pods:
        progress.tick(lambda: f"{len(made)} of {len(pods)} pods translated")
        made.append(_made(pod, settings))
    words = [_in_words(pod, each, to) for pod, each in zip(pods, made, strict=True)]
    if output == "text":
        listed = zip(pods, made, words, strict=True)
        _show([(line(pod.place), _lines([*_facts(each), *_words(said)])) for pod, each, said in listed])
    else:
        listed = zip(pods, made, words, strict=True)
        write([msgspec.structs.replace(_answer(pod, each), said=said) for pod, each, said in listed], output)
    are_all_said = all(said is None or not said.unsaid for said in words)
    return 0 if are_all_said and all(isinstance(each, Translation) for each in made) else 1


def _in_words(found: FoundPod, made: Translation | Refusal | str, to: str) -> InWords | None:
    """Say a pod that was understood in another system's words; None where nobody asks for that."""
    if to == NATIVE or not isinstance(made, Translation) or found.pod is None:
        return None
    from gpu.translate import say

    answer = say.say(made, found.pod.spec, to)
    if not isinstance(answer, say.Said):
        return InWords(dialect=to, unsaid=f"{answer.field} {answer.value}".strip())
    by_key = {ref.key: container.name for ref, container in containers(found.pod.spec)}
    return InWords(
        dialect=to,
        labels=answer.words.labels,
        annotations=answer.words.annotations,
        limits={by_key[key]: limits for key, limits in answer.words.limits.items()},
        adds=answer.adds,
        leaves=answer.leaves,
    )


def _made(found: FoundPod, settings: DialectSettings) -> Translation | Refusal | str:
    return found.malformed if found.pod is None else understood(found.pod, settings)


def _answer(found: FoundPod, made: Translation | Refusal | str) -> Answer:
    answer = Answer(
        file=found.file,
        document=found.document,
        path=found.path,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
    )
    if isinstance(made, str):
        return msgspec.structs.replace(answer, refused=f"{MALFORMED}: {made}")
    if isinstance(made, Refusal):
        return msgspec.structs.replace(answer, refused=told(made), refusal=made)
    return msgspec.structs.replace(
        answer,
        dialect=made.dialect,
        record=msgspec.Raw(record.render(made).encode()),
        notes=tuple(messages.note_text(note) for note in made.notes),
        changes=tuple(_changes(made)),
    )


def _changes(translation: Translation) -> Iterator[Change]:
    for edit in translation.edits:
        yield Change(edit.container.key, resource=edit.resource, count=edit.count)
    for variable in translation.env:
        yield Change(variable.container.key, variable=variable.name, value=variable.value)


# --- text --------------------------------------------------------------------------------------------------------


def _show(rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """One block a pod: its place, then each fact with what it is about. On a terminal a table."""
    if sys.stdout.isatty():
        from ui import outcomes  # rich is for terminals

        outcomes.show_facts(rows)
        return
    for place, facts in rows:
        sys.stdout.write(f"{place}\n")
        sys.stdout.writelines(f"  {what:<9} {text}\n" for what, text in facts)


def _lines(facts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(what, line(text)) for what, text in facts]


def _facts(made: Translation | Refusal | str) -> Iterator[tuple[str, str]]:
    if isinstance(made, str):
        yield "refused", f"{MALFORMED}: {made}"
    elif isinstance(made, Refusal):
        yield "refused", told(made)
    else:
        yield from _understood(made)


def _understood(made: Translation) -> Iterator[tuple[str, str]]:
    yield "dialect", made.dialect
    first, *others = messages.way_lines(made)
    for text in first:
        yield "asks", text
    for lines in others:
        yield "or", "; ".join(lines)
    for text in messages.wish_lines(made):
        yield "wish", text
    for note in made.notes:
        yield "note", messages.note_text(note)
    for edit in made.edits:
        yield "change", messages.edit_text(edit)
    for variable in made.env:
        yield "change", f"{variable.container.name}: {variable.name} is set to {variable.value}"


def _words(said: InWords | None) -> Iterator[tuple[str, str]]:
    if said is None:
        return
    if said.unsaid:
        yield "unsaid", f"{said.dialect} has no words for this: {said.unsaid}"
    for kind, texts in (("label", said.labels), ("annotation", said.annotations)):
        for name, text in texts.items():
            yield said.dialect, f"{kind} {name}: {msgspec.json.encode(text).decode()}"
    for container, limits in said.limits.items():
        for name, amount in limits.items():
            yield said.dialect, f"limit {name}: {amount} of container {container}"
    for field, value in said.adds.items():
        yield "adds", f"{field} {value}"
    for field, value in said.leaves.items():
        yield "leaves", f"{field} {value}"

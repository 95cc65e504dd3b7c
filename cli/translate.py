"""``moorage translate``: what manifests ask of GPUs, in whichever way they say it (docs/translate.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cli import podfiles
from cli.podfiles import FoundPod
from cli.understanding import understood
from gpu import record, telling
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Refusal, told
from gpu.translation import Translation

MALFORMED: Final = "the API server would not take this pod"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What admission does to a container: a count of a resource, or None to take it out; or a variable."""

    container: str
    resource: str = ""
    count: int | None = None
    variable: str = ""
    value: str = ""


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
    refused: str = ""
    refusal: Refusal | None = None


def run(files: Sequence[str], *, output: str) -> int:
    """Translate and print; return 1 if a pod is refused, else 0. Raises BadInput."""
    pods = podfiles.read(files)
    made = [_made(pod) for pod in pods]
    if output == "text":
        _show([(pod.place, list(_facts(each))) for pod, each in zip(pods, made, strict=True)])
    else:
        write([_answer(pod, each) for pod, each in zip(pods, made, strict=True)], output)
    return 0 if all(isinstance(each, Translation) for each in made) else 1


def write(values: Sequence[msgspec.Struct], output: str) -> None:
    """Print a list as JSON or YAML."""
    encoded = msgspec.json.format(msgspec.json.encode(values))
    if output == "yaml":
        import yaml  # noqa: PLC0415 - for those who ask for it

        plain = yaml.safe_dump(msgspec.json.decode(encoded), sort_keys=False, allow_unicode=True, width=120)
        sys.stdout.write(plain)
    else:
        sys.stdout.write(encoded.decode() + "\n")


def _made(found: FoundPod) -> Translation | Refusal | str:
    return found.malformed if found.pod is None else understood(found.pod, DialectSettings())


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
        notes=tuple(telling.note_text(note) for note in made.notes),
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
        from cli import offlinetables  # noqa: PLC0415 - rich is for terminals

        offlinetables.show_facts(rows)
        return
    for place, facts in rows:
        sys.stdout.write(f"{place}\n")
        sys.stdout.writelines(f"  {what:<9} {text}\n" for what, text in facts)


def _facts(made: Translation | Refusal | str) -> Iterator[tuple[str, str]]:
    if isinstance(made, str):
        yield "refused", f"{MALFORMED}: {made}"
    elif isinstance(made, Refusal):
        yield "refused", told(made)
    else:
        yield from _understood(made)


def _understood(made: Translation) -> Iterator[tuple[str, str]]:
    yield "dialect", made.dialect
    for line in telling.request_lines(made.request):
        yield "asks", line
    for request in made.alternatives:
        yield "or", "; ".join(telling.request_lines(request))
    for line in telling.wish_lines(made):
        yield "wish", line
    for note in made.notes:
        yield "note", telling.note_text(note)
    for edit in made.edits:
        yield "change", telling.edit_text(edit)
    for variable in made.env:
        yield "change", f"{variable.container.name}: {variable.name} is set to {variable.value}"

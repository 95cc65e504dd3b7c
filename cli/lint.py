"""``moorage lint``: what admission and the scheduler would say of manifests, and what is surely not meant.

docs/translate.md lists the findings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from cli.manifests import obstacles as beside
from cli.manifests.obstacles import Beside, excess, obstacles
from cli.manifests.suspicions import Level, Said, count, said_of_objects, suspicions
from gpu import messages
from gpu.dialects.settings import DialectSettings
from gpu.manifests import MALFORMED
from gpu.translation import Refusal, told
from runtime import manifests
from runtime.manifests import FoundPod, understood
from runtime.output import Progress, write
from runtime.text import line


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. An error is refused in a cluster; a note is a text whose meaning differs from what it suggests."""

    level: Level
    code: str
    file: str
    document: int
    path: str
    kind: str
    namespace: str
    name: str
    field: str
    text: str


def run(
    files: Sequence[str],
    *,
    output: str,
    strict: bool,
    settings: DialectSettings,
    progress: Progress | None = None,
) -> int:
    """Print findings; return 1 if there is an error (``strict``: any finding), else 0. Raises BadInput."""
    progress = progress or Progress()
    read = manifests.read_all(files, progress)
    pods, around = read.pods, beside.beside(read.objects)
    findings: list[Finding] = []
    for judged, found in enumerate(pods):
        progress.tick(lambda: f"{judged} of {len(pods)} pods judged")  # noqa: B023 - called at once
        findings += _findings(found, settings, around)
    findings += map(_of_object, said_of_objects(read.placed))
    if output == "text":
        _show(findings, _summary(len(pods), count(read.placed), findings))
    else:
        write(findings, output)
    return 1 if any(strict or finding.level == "error" for finding in findings) else 0


def _findings(found: FoundPod, settings: DialectSettings, around: Beside) -> Iterator[Finding]:
    if found.pod is None:
        yield _finding(found, "error", code="malformed", text=f"{MALFORMED}: {found.malformed}")
        return
    too_large = excess(found, found.pod, beside=around, dialects=settings)
    if too_large is not None:
        yield _finding(found, "error", code=too_large.code.value, field=too_large.field, text=told(too_large))
        return
    made = understood(found.pod, settings)
    if isinstance(made, Refusal):
        yield _finding(found, "error", code=made.code.value, field=made.field, text=told(made))
        return
    fields = set()
    waiting = obstacles(found, found.pod, made, beside=around, dialects=settings)
    for suspicion in chain(suspicions(found, found.pod, made), waiting):
        fields.add(suspicion.field)
        text = f"{suspicion.field} {suspicion.text}"
        yield _finding(found, suspicion.level, code=suspicion.code, field=suspicion.field, text=text)
    for note in made.notes:
        if note.field not in fields:
            yield _finding(found, "note", code=note.code.value, field=note.field, text=messages.note_text(note))


def _finding(found: FoundPod, level: Level, *, code: str, text: str, field: str = "") -> Finding:
    return Finding(
        level=level,
        code=code,
        file=found.file,
        document=found.document,
        path=found.path,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        field=field,
        text=text,
    )


def _of_object(said: Said) -> Finding:
    placed = said.placed
    return Finding(
        level=said.level,
        code=said.code,
        file=placed.file,
        document=placed.document,
        path="",
        kind=str(placed.item["kind"]),
        namespace=said.namespace,
        name=said.name,
        field=said.field,
        text=said.text,
    )


def _show(findings: Sequence[Finding], summary: str) -> None:
    """One line a finding, as compilers write them, and the sum. On a terminal a table."""
    rows = [(line(_place(one)), one.level, line(f"{one.text} [{one.code}]")) for one in findings]
    if sys.stdout.isatty():
        from ui import outcomes  # noqa: PLC0415 - rich is for terminals

        outcomes.show_findings(rows, summary)
        return
    sys.stdout.writelines(f"{place}: {level}: {text}\n" for place, level, text in rows)
    sys.stdout.write(f"{summary}\n")


def _place(finding: Finding) -> str:
    template = f" {finding.path}" if finding.path else ""
    name = f"{finding.namespace}/{finding.name}" if finding.namespace else finding.name
    return f"{finding.file} document {finding.document}: {finding.kind} {name}{template}"


def _summary(pods: int, objects: Mapping[str, int], findings: Sequence[Finding]) -> str:
    """``1 pod, 2 Queues: 0 errors, ...``."""
    judged = [_counted(pods, "pod"), *(_counted(number, kind) for kind, number in objects.items())]
    counts = (_counted(sum(each.level == level for each in findings), level) for level in ("error", "warning", "note"))
    return f"{', '.join(judged)}: {', '.join(counts)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

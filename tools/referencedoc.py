"""Pages of docs/reference that are made from the code: ``python -m tools.referencedoc write``, and ``check``.

What is above the line that says so is written by hand; what is below is made from the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from admission.objects.findings import TEXTS
from nodeagent.core.plugin.health import CATALOGUE, EXCEPTIONS, Cure, Xid, counts, cure_of
from podgrouper.core.kinds import KINDS, OTHER
from podgrouper.core.rule_input import Kind, Makes, Name, Top
from podgrouper.core.rules import alone
from scheduler.conditions import advice
from scheduler.conditions.advice import anchor
from scheduler.conditions.messages import KIND_WORDS
from scheduler.conditions.suggestion_messages import KEPT_WORDS
from tools import controlplane
from tools.controllers.catalogue import CONTROLLERS
from tools.controllers.catalogue import Kind as ControllersKind
from wire.crds.definition import Definition
from wire.crds.render import DEFINITIONS

_ROOT: Final = Path(__file__).parent.parent
_SECTION: Final = re.compile(r"# --- (?P<title>.+?) -+$")
_COMMENT: Final = re.compile(r" *#: ?(?P<text>.*)$")
_CONSTANT: Final = re.compile(r' *(?P<name>[A-Z][A-Z0-9_]*)(?:: Final)? = "(?P<value>[^"]*)"(?:  # .*)?$')


class Constant(NamedTuple):
    """A text that a module names: its section, if the module has sections, and what its comment says of it."""

    section: str
    name: str
    value: str
    comment: str


def constants(path: str) -> Iterator[Constant]:
    """Read the constants of a file, by its path from the root, with the ``#:`` comments above them."""
    section, comment = "", []
    for line in (_ROOT / path).read_text(encoding="utf-8").splitlines():
        if found := _SECTION.match(line):
            section = found["title"]
        if found := _COMMENT.match(line):
            comment.append(found["text"])
            continue
        if found := _CONSTANT.match(line):
            yield Constant(section, found["name"], found["value"], " ".join(comment))
        comment = []


FOLDER: Final = Path(__file__).parent.parent / "docs" / "reference"
_BEGIN: Final = "<!-- Made by `make reference` from the code: change that. -->\n"
_NAMES: Final = "wire/names.py"
#: Sections of that file that the other page tells.
_TOLD_ELSEWHERE: Final = "conditions, phases, events"
_OURS: Final = ("pod annotations", "labels and annotations of nodes", "environment")
_OTHERS: Final = ("HAMi", "Volcano", "Koordinator", "KAI 0.18")
#: Begin the names of constants there that are values.
_VALUES: Final = (
    "CONTAINER_TYPE_",
    "RECEIVED_REGULAR",
    "RECEIVED_FRACTION",
    "RECEIVED_MIG",
    "VISIBLE_DEVICES_NONE",
    "MOORAGE_PREFIX",
)
#: Kinds whose pods Kubernetes' own controllers make in tests/e2e (test_grouping.py).
_OF_KUBERNETES: Final = {("apps", "Deployment"), ("batch", "Job")}
_ABOUT: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def crds() -> Iterator[str]:
    """The kinds that the chart installs, with every field."""
    for definition in DEFINITIONS:
        yield from _kind(definition)


def names() -> Iterator[str]:
    """Annotations, labels and variables of objects; of other systems' words the list alone."""
    told = (each for each in constants(_NAMES) if not each.name.startswith(_VALUES))
    for section, found in groupby(told, lambda constant: constant.section):
        each = list(found)
        if section.startswith(_OURS):
            yield f"\n## {_upper(section)}\n\n"
            yield from _table(("name", "what it is"), ((_code(one.value), one.comment) for one in each))
        elif section.startswith(_OTHERS):
            title = re.split(r":| \(", section)[0]
            yield f"\n## Words of {title}\n\n{', '.join(_code(one.value) for one in each)}\n"


def events() -> Iterator[str]:
    """Conditions and Events, and why a pod waits or was not bound."""
    told = [each for each in constants(_NAMES) if each.section == _TOLD_ELSEWHERE]
    yield "\n## Conditions\n\n"
    yield from _table(("type", "what it is"), _commented(told, "CONDITION_"))
    yield "\n## Reasons of conditions and Events\n\n"
    yield from _table(("reason", "what has happened"), _commented(told, "REASON_"))
    yield "\n## What keeps a pod waiting\n\n"
    yield "The verdict's code, as metrics name it; the message of the condition says it in words.\n\n"
    yield from _table(("verdict", "what it is"), _commented(constants("scheduler/core/model/verdict.py"), ""))
    yield "\n## What keeps nodes out\n\nAfter `no nodes with enough resources were found`, counted by node:\n\n"
    yield from _table(("kind", "words"), ((_code(kind), words) for kind, words in KIND_WORDS.items()))
    yield "\n## Why a pod was not bound to the node that was chosen\n\n"
    yield "In its annotation `moorage.dev/fenced-because`, as `Cause: detail`:\n\n"
    yield from _table(("cause", "what it is"), _commented(constants("gpu/attempts.py"), ""))


def pending() -> Iterator[str]:
    """Every reason for which a pod waits, with what to do, each under a stable name."""
    yield "\n## Why the group waits\n\n"
    yield "Verdicts, as metrics and `explain -o json` name them; [what they mean](reference/events.md).\n\n"
    yield from _advised((code.value, _code(code.value), what) for code, what in advice.OF_CODES.items())
    yield "\n## Why a node takes no pod of it\n\n"
    words = {**KIND_WORDS, "insufficient": "node(s) didn't have enough resources"}
    yield from _advised((kind, _emphasised(words[kind]), what) for kind, what in advice.OF_NODES.items())
    yield "\n## Why a pod that could go is not evicted for it\n\n"
    yield from _advised((kept.value, _emphasised(KEPT_WORDS[kept]), what) for kept, what in advice.OF_KEPT.items())


def _advised(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """One line for each advice, with all reasons that it is for. The same words are there once."""
    by_advice: dict[str, dict[str, str]] = {}
    for reason, words, what in rows:
        named = by_advice.setdefault(what, {})
        named[words] = f'<a id="{anchor(reason)}"></a>{named.get(words, "")}'
    for what, named in by_advice.items():
        yield f"- {'; '.join(anchors + words for words, anchors in named.items())}: {what}\n"


def _emphasised(words: str) -> str:
    return f"*{words.removeprefix('node(s) ')}*"


def workloads() -> Iterator[str]:
    """Every kind of workload that is grouped, and how."""
    yield "\n## Kinds\n\n"
    head = ("kind", "PodGroup", "minimum and parts", "priority class", "seen with its controller")
    yield from _table(head, (_workload(row) for row in (*KINDS, OTHER)))
    yield "\n## Differences from KAI\n\n"
    by_text: dict[str, dict[str, None]] = {}
    for row in KINDS:
        if row.differs:
            by_text.setdefault(row.differs, {})[_code(f"{row.kind}.{row.api_group}")] = None
    yield from _table(("kind", "difference"), ((", ".join(kinds), text) for text, kinds in by_text.items()))


def checks() -> Iterator[str]:
    """What admission checks of objects beside pods."""
    yield "\n## Rules\n\n"
    head = ("rule", "message", "allowed")
    rows = ((_code(rule.value), _code(text.message), text.allowed.replace("|", "or")) for rule, text in TEXTS.items())
    yield from _table(head, rows)


def xids() -> Iterator[str]:
    """What each XID of NVIDIA's catalogue does to a GPU that the device plug-in offers."""
    yield "\n"
    head = ("XID", "what it is", "NVIDIA's action", "the GPU", "why not by NVIDIA's action")
    yield from _table(head, (_xid(line) for line in CATALOGUE))


def _xid(line: Xid) -> tuple[str, ...]:
    numbers = str(line.first) if line.first == line.last else f"{line.first} to {line.last}"
    healed = "until no process has it" if cure_of(line.first) is Cure.IDLE else "until it was reset"
    effect = f"ill {healed}" if counts(line.first) else "stays well"
    _, why = EXCEPTIONS.get(line.first, (False, ""))
    return numbers, line.meaning, _code(line.action) if line.action else "none", effect, why


def _workload(row: Kind) -> tuple[str, ...]:
    group = f"{row.api_group}/" if row.api_group else ""
    name = _code(f"{row.kind}.{group}{', '.join(row.versions) or '*'}") if row.kind else "any other kind"
    if row.pod_labels:
        name += f" with labels {', '.join(map(_code, row.pod_labels))}"
    if row.top is Top.SKIP:
        return name, "that of the object below it", "", "", _seen(row)
    named = {
        Name.BY_OWNER: "one for the workload",
        Name.BY_POD: "one for each pod",
        Name.BY_LABEL: f"one for each value of {_code(row.pod_labels[-1])}" if row.pod_labels else "",
    }[row.name]
    asked = ", if an owner states more than the pod" if row.makes is Makes.WHEN_ASKED else ""
    minimum = "1" if row.name is not Name.BY_OWNER else ((row.rule or alone.shape).__doc__ or "").rstrip(".")
    return name, named + asked, minimum, _code(row.priority), _seen(row)


def _seen(row: Kind) -> str:
    """With which version of its controller the tests see a kind, or that they make its objects by themselves."""
    if not row.kind or row.kind == "Pod":
        return ""
    found = [each for each in CONTROLLERS.values() if any(_is_of(row, kind) for kind in each.kinds)]
    of_kubernetes = controlplane.version() if (row.api_group, row.kind) in _OF_KUBERNETES else "by its objects only"
    maker = next((each.version for each in found if not each.holds_back), of_kubernetes)
    return ", ".join([maker, *(f"{each.name.title()} {each.version}" for each in found if each.holds_back)])


def _is_of(row: Kind, kind: ControllersKind) -> bool:
    group, _, version = kind.api_version.partition("/")
    return (group, kind.name) == (row.api_group, row.kind) and (not row.versions or version in row.versions)


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "xids.md": xids,
    "crds.md": crds,
    "names.md": names,
    "events.md": events,
    "workloads.md": workloads,
    "checks.md": checks,
    "../pending.md": pending,
}


def _commented(found: Iterable[Constant], prefix: str) -> Iterator[tuple[str, str]]:
    return ((_code(one.value), one.comment) for one in found if one.name.startswith(prefix))


def _kind(definition: Definition) -> Iterator[str]:
    manifest = definition.manifest()
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield f"\n## {definition.kind}\n\n{schema['description']}\n\n"
    yield f"`{definition.group}/{definition.version}`, `{definition.plural}`"
    yield "".join(f", short `{short}`" for short in definition.short_names)
    yield f"; {'in a namespace' if definition.namespaced else 'of the whole cluster'}"
    yield f"; {'with' if definition.has_status else 'without'} a subresource `status`.\n\n"
    yield from _table(("field", "type", "allowed", "what it is"), _fields(schema, ""))


def _fields(schema: Mapping[str, Any], above: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{above}{name}"
        if path in {"apiVersion", "kind", "metadata"}:
            continue
        inner, marks = _innermost(field)
        must = ["required"] if name in required else []
        told = field.get("description", inner.get("description", ""))
        yield _code(path + marks), _type(inner), "; ".join([*must, *_allowed(field)]), told
        yield from _fields(inner, f"{path}{marks}.")


def _innermost(field: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if "items" in field:
        inner, marks = _innermost(field["items"])
        return inner, f"[]{marks}"
    if isinstance(field.get("additionalProperties"), dict):
        inner, marks = _innermost(field["additionalProperties"])
        return inner, f".*{marks}"
    return field, ""


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("x-kubernetes-preserve-unknown-fields"):
        return "object, kept as it is"
    return " ".join(str(field[key]) for key in ("type", "format") if key in field)


def _allowed(field: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in field:
        yield "one of " + ", ".join(_code(str(value)) for value in field["enum"])
    yield from (text.format(field[key]) for key, text in _ABOUT.items() if key in field)
    if "pattern" in field and not field.get("x-kubernetes-int-or-string"):
        yield _code(field["pattern"])
    yield from (rule["message"] for rule in field.get("x-kubernetes-validations", ()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(cell.replace('``', '`').replace('|', chr(92) + '|') for cell in row)} |\n"


def _code(text: str) -> str:
    return f"`{text}`"


def _upper(section: str) -> str:
    return re.sub(r" \(docs/[^)]*\)", "", section[0].upper() + section[1:])


def rendered(name: str, text: str) -> str:
    """Return a page with its tables as the code would make them. Raises ValueError for a page without their place."""
    by_hand, mark, _ = text.partition(_BEGIN)
    if not mark:
        raise ValueError(f"{name} has no line that says where the tables begin: {_BEGIN}")
    return by_hand + _BEGIN + "".join(PAGES[name]())


def main(arguments: Sequence[str]) -> int:
    """Write, or check; return the exit code."""
    if list(arguments) not in (["write"], ["check"]):
        print("usage: python -m tools.referencedoc write|check", file=sys.stderr)
        return 2
    code = 0
    for name in PAGES:
        path = FOLDER / name
        is_text = path.read_text(encoding="utf-8")
        should_be = rendered(name, is_text)
        if arguments[0] == "write":
            path.write_text(should_be, encoding="utf-8")
        elif is_text != should_be:
            print(f"docs/reference/{name}: not what the code says: make reference", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

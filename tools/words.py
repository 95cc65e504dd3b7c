"""Whether texts use plain words: ``python -m tools.words``.

All pages are held to the rules, and the files of ``HELD``: a file joins when it is rewritten, and none leaves. Pages
are checked for words, length of sentences and of table cells; Python files and the pages of ``WORDS_ONLY`` for words.
So are the strings and docstrings in all modules of ``SPEAKING``: what people read of a program. Comments are held there
and in ``COMMENTED``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

HELD: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "runtime/metrics/declared.py",
    "helm/moorage/alerts/moorage.yaml",
    "scheduler/conditions/messages.py",
    "simulator/clock.py",
    "tests/durations.py",
    "tools/navigation.py",
    "tools/words.py",
)
#: Pages whose tables are made from the code, or that give an argument its full length, as design pages do.
WORDS_ONLY: Final = (
    "docs/reference/benchmarks.md",
    "docs/design/invariants.md",
    "docs/reference/metrics.md",
    "docs/reference/crds.md",
    "docs/reference/dialects.md",
    "docs/reference/events.md",
    "docs/reference/names.md",
    "docs/reference/workloads.md",
    "docs/reference/settings.md",
)
#: Packages whose strings, docstrings and comments are held to words.
SPEAKING: Final = (
    "admission",
    "binder",
    "cli",
    "gpu",
    "kube",
    "podgrouper",
    "reservation",
    "runtime",
    "scheduler",
    "sharing",
    "simulator",
    "tools",
    "ui",
    "verification",
    "wire",
)
#: Packages of which only the comments are held: their strings are what programs read, or what tests look for.
COMMENTED: Final = ("bench", "docs", "nodeagent", "tests")
#: Notes on KAI's own code, for engineers.
_NOT_HELD: Final = ("docs/reference/kai-contract.md",)
_DOCS: Final = Path("docs")
#: What is not written -> what to write.
WORDS: Final = {
    r"\bw[h]oever\b": "name the thing",
    r"\bw[h]atever (?!system|dialect|is late)": "name the thing",
    r"\b(?:s)o many\b": "the number",
    r"\ball the s[a]me\b": "the condition",
    r"\ba[n]ew\b": "again",
    r"\blet g[o]\b": "return, release or close",
    r"\bis t[o]ld\b": "is logged, is shown or is written",
    r"\bw[h]o has\b": "name the thing",
    r"\bas it st[a]nds\b": "unchanged",
    r"\bgr[a]phics c[a]rds?\b": "device",
    r"(?<!\S)st[a]nds? (?:in|on) (?!for)": "is in, is on",
    r"\bother[w]ise\b": "the condition",
    r"\bby itself\b": "automatically",
}
#: And on pages for users, where the glossary has one word for it.
PAGE_WORDS: Final = {r"\bcards?\b": "GPU, or device"}
#: Words of ours that no name of a module, class or function has: docs/reference/glossary.md has the field's word.
PRIVATE_WORDS: Final = {
    "berth": "reserved nodes",
    "carver": "MIG partitioning",
    "carving": "MIG partitioning",
    "intent": "nomination",
    "keeper": "MPS daemon",
    "saying": "conditions, messages",
    "sifting": "candidates",
    "sleeper": "unschedulable",
    "standing": "state",
    "telling": "conditions, messages",
    "upkeep": "background loops",
    "warden": "memory enforcer",
    "winding": "timeline",
    "witness": "device reporter",
}
#: What modules do, where the field says it so. A module is named by a noun.
GERUNDS: Final = frozenset({
    *("binding", "charging", "coscheduling", "decoding", "drawing", "grouping", "listing", "packing", "partitioning"),
    *("pinning", "queueing", "ranking", "rebuilding", "recording", "sampling", "scaling", "scheduling", "serving"),
    *("sharing", "tracing"),
})  # fmt: skip
#: Packages whose names are held to that: those that are shipped.
NAMED: Final = (
    *("admission", "binder", "cli", "gpu", "kube", "nodeagent", "podgrouper", "reservation", "runtime", "scheduler"),
    *("sharing", "simulator", "ui", "wire"),
)
_NOT_GERUNDS: Final = frozenset({"string", "ring"})
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FOR_CONTRIBUTORS: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "docs/design/")
_ANY: Final = re.compile("|".join(WORDS), re.IGNORECASE)
_MOST_WORDS: Final = 25
_MOST_CELL: Final = 120
_FENCED: Final = re.compile(r"^( *)(```+).*?^\1\2 *$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`]*`")
_TAG: Final = re.compile(r"<[^>]*>")
_TARGET: Final = re.compile(r"\]\([^)]*\)")
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=[#>|-]|\d+\. )")


def wrong_words(text: str) -> Iterator[str]:
    """Words that have a plainer one, with their line."""
    return _found(text, WORDS) if _ANY.search(text) else iter(())


def _found(text: str, words: Mapping[str, str]) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in words.items():
            for found in re.finditer(pattern, line, re.IGNORECASE):
                yield f"line {number}: {found[0].strip()!r}: write {instead}"


def too_long(page: str) -> Iterator[str]:
    """Sentences and table cells of a page that are too long."""
    prose = _TAG.sub("", _TARGET.sub("]", _CODE.sub("code", _FENCED.sub("", page))))
    for line in prose.splitlines():
        if line.startswith("|"):
            yield from (f"cell of {len(cell)} characters: {cell[:60]}..." for cell in _cells(line))
    text = "\n".join("" if line.startswith("|") else line for line in prose.splitlines())
    for sentence in _SENTENCE.split(text):
        count = len(sentence.split())
        if count > _MOST_WORDS:
            yield f"sentence of {count} words: {' '.join(sentence.split()[:10])}..."


def _cells(line: str) -> Iterator[str]:
    return (cell.strip() for cell in line.split("|") if len(cell.strip()) > _MOST_CELL)


def held() -> list[Path]:
    """All files that are held to the rules."""
    pages = (page for page in _DOCS.rglob("*.md") if str(page) not in _NOT_HELD)
    return sorted({*map(Path, HELD), *pages})


def complaints(path: Path) -> list[str]:
    """What is wrong with one file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        return list(wrong_words(text))
    prose = _FENCED.sub(_blank, text)
    words = [*wrong_words(prose)]
    if is_for_users(path):
        words += wrong_page_words(prose)
    return words if str(path) in WORDS_ONLY else [*words, *too_long(text)]


def is_for_users(page: Path) -> bool:
    """Whether users of Moorage read a page, and not its contributors alone."""
    return not str(page).startswith(_FOR_CONTRIBUTORS)


def wrong_page_words(page: str) -> Iterator[str]:
    """Words of a page for users that the glossary has another one for. Names in code are no words."""
    return _found(_TAG.sub("", _TARGET.sub("]", _CODE.sub("", page))), PAGE_WORDS)


def wrong_texts(source: str) -> Iterator[str]:
    """Wrong words in the strings and docstrings of a module, with their line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _moved(wrong_words(node.value), node.lineno)


def wrong_comments(source: str) -> Iterator[str]:
    """Wrong words in the comments of a module, with their line."""
    if not _ANY.search("\n".join(line for line in source.splitlines() if "#" in line)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _moved(wrong_words(token.string), token.start[0])


def wrong_names(path: Path, source: str) -> Iterator[str]:
    """Names of a module, its classes and its functions that have a private word; a gerund of its own as module."""
    for part in path.stem.split("_"):
        if part.endswith("ing") and part not in GERUNDS and part not in _NOT_GERUNDS:
            yield f"line 1: module {path.stem!r}: name it by a noun, or add {part!r} to GERUNDS"
    made = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    named = [(1, path.stem)]
    named += [(node.lineno, node.name) for node in ast.walk(ast.parse(source)) if isinstance(node, made)]
    for line, name in named:
        for part in map(str.lower, _PART.findall(name)):
            instead = PRIVATE_WORDS.get(part) or PRIVATE_WORDS.get(part.removesuffix("s"))
            if instead is not None:
                yield f"line {line}: name {name!r}: write {instead}"


def _moved(found: Iterator[str], first: int) -> Iterator[str]:
    """The same complaints about a text that begins at the line ``first``."""
    for each in found:
        at, what = each.removeprefix("line ").split(":", 1)
        yield f"line {first + int(at) - 1}:{what}"


def modules(packages: Iterable[str] = SPEAKING) -> list[Path]:
    """All modules of these packages, but for the files that are held as a whole."""
    found = (module for package in packages for module in Path(package).rglob("*.py"))
    return sorted({*found} - {*held()})


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def main() -> int:
    """Print every complaint; return 1 if there was one."""
    found = [f"{path}: {each}" for path in held() for each in complaints(path)]
    for rule, packages in ((wrong_texts, SPEAKING), (wrong_comments, (*SPEAKING, *COMMENTED))):
        for path in modules(packages):
            found += [f"{path}: {each}" for each in rule(path.read_text(encoding="utf-8"))]
    for path in sorted(module for package in NAMED for module in Path(package).rglob("*.py")):
        found += [f"{path}: {each}" for each in wrong_names(path, path.read_text(encoding="utf-8"))]
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Pods in manifests as people keep them, read within bounds, and what Moorage makes of one, offline.

They are pods themselves, and the pod templates of objects that make pods (gpu/manifests.py). Files, folders and
standard input; YAML with any number of documents, Lists, JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from yaml.composer import ComposerError
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent, ScalarEvent

from gpu import bound_pod
from gpu import manifests as podtemplates
from gpu.dialects.settings import DialectSettings
from gpu.translate import combine
from gpu.translation import Refusal, Translation, shown
from runtime.options import manifests
from runtime.output import Progress
from runtime.text import BadInput, line
from wire.core import Pod
from wire.yaml_text import why_not_yaml

#: Most values that the aliases of one file may repeat, keys counted too: some twenty thousand whole pods.
MOST_REPEATED: Final = 1_000_000
#: Long text counts as one more value for each this many characters: an alias repeats it whole where it is written out.
_CHARACTERS_A_VALUE: Final = 32
#: Most levels. libyaml goes down the stack of C with each of them and does not look how much of that is left.
DEEPEST: Final = 256
#: Some 50 pods, which take 10 ms.
_EVENTS_A_TICK: Final = 2_000
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _nothing() -> None:
    """Nobody waits."""


def documents(text: str, tick: Callable[[], None] = _nothing) -> list[object]:
    """Read all documents of a text. Raises yaml.YAMLError, ValueError or RecursionError for what is none.

    Ten thousand pods are 3 MB of text, so libyaml reads them where PyYAML has it. Manifests may repeat themselves by
    aliases (``*name`` and ``<<: *name``), but twenty lines of aliases that repeat aliases say as much as a whole disk.
    So a text is looked through before anything is made of it. ``tick`` is called again and again while a long text is
    read.
    """
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return [msgspec.json.decode(text)]
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass  # YAML has these brackets too
    seen = _Seen()
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        seen.event(event)
        if number % _EVENTS_A_TICK == 0:
            tick()
    found: list[object] = []
    for document in yaml.load_all(text, Loader=_Loader):
        found.append(document)
        tick()
    return found


class _Seen:
    """What of a text was seen: how many values, and how many of them aliases repeat."""

    def __init__(self) -> None:
        self._values = 0
        self._repeated = 0
        #: Of each list and object that is not complete: its anchor, and how many values there were before it.
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str | None, int] = {}

    def event(self, event: Any) -> None:
        """Go on by one event of the parser. Raises ComposerError for more than anybody means."""
        kind = type(event)
        if kind is ScalarEvent:
            before = self._values
            self._values += len(event.value) // _CHARACTERS_A_VALUE
            self._complete(event.anchor, before)
        elif issubclass(kind, CollectionStartEvent):
            self._open.append((event.anchor, self._values))
            if len(self._open) > DEEPEST:
                raise _wrong(f"it has more than {DEEPEST} levels", event)
        elif issubclass(kind, CollectionEndEvent):
            self._complete(*self._open.pop())
        elif kind is AliasEvent:
            self._repeat(event)
        elif kind is DocumentStartEvent:
            self._sizes.clear()

    def _complete(self, anchor: str | None, before: int) -> None:
        self._values += 1
        self._sizes[anchor] = self._values - before

    def _repeat(self, alias: Any) -> None:
        if any(anchor == alias.anchor for anchor, _ in self._open):
            raise _wrong(f"*{alias.anchor} stands inside of what it repeats", alias)
        size = self._sizes.get(alias.anchor, 0)
        self._values += size
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            raise _wrong(f"its aliases repeat more than {MOST_REPEATED} values: write out what is meant", alias)


def _wrong(what: str, event: Any) -> ComposerError:
    return ComposerError(None, None, what, event.start_mark)


_DEFAULT_NAMESPACE: Final = "default"
#: Kinds that are of no namespace, of those with pod templates: ClusterTrainingRuntime, ClusterWorkflowTemplate.
_OF_CLUSTERS: Final = re.compile(r"Cluster[A-Z]")
#: API groups of objects that describe pods in another form than a pod template.
_DESCRIBING: Final = ("argoproj.io/", "sparkoperator.k8s.io/", "serving.kserve.io/")


class Placed(msgspec.Struct, frozen=True):
    """An object as it is written, and where it stands."""

    file: str
    document: int
    item: Mapping[str, Any]


class Found(msgspec.Struct, frozen=True):
    """What was found: ``pods`` and templates, and all objects in which they stand or which stand beside them."""

    pods: list[FoundPod]
    placed: list[Placed]

    @property
    def objects(self) -> list[Mapping[str, Any]]:
        """All objects as they are written."""
        return [each.item for each in self.placed]


class FoundPod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod or template, and where it stands. ``malformed``: why the API server would not even read it.

    ``namespace``: "" for what has none, as a ClusterTrainingRuntime.
    """

    file: str
    document: int
    path: str
    kind: str
    namespace: str
    name: str
    pod: Pod | None
    malformed: str = ""
    #: The pod or template, unchanged.
    raw: Mapping[str, Any] = {}
    #: What makes the pods, unchanged; empty for a pod itself.
    owner: Mapping[str, Any] = {}
    #: Its annotations, which are not the pods' own.
    owner_annotations: Mapping[str, str] = {}

    @property
    def place(self) -> str:
        """File, document, kind and name, for messages."""
        template = f" {self.path}" if self.path else ""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.file} document {self.document}: {self.kind} {name}{template}"


def read(files: Sequence[str], progress: Progress | None = None) -> list[FoundPod]:
    """Find all pods of all files. Raises BadInput for what can't be read, or is no YAML."""
    return read_all(files, progress).pods


def _itself(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [item]


def read_all(
    files: Sequence[str],
    progress: Progress | None = None,
    *,
    unwrapped: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] = _itself,
) -> Found:
    """Find all pods of all files, and all other objects. Raises BadInput likewise.

    ``unwrapped``: what is read in place of an object.
    """
    found, progress = Found([], []), progress or Progress()
    for name in files:
        for path in manifests.expanded(name):

            def tick(file: str = str(path)) -> None:
                progress.tick(lambda: f"reading {line(file)}, objects read: {len(found.placed)}")

            for number, item in _objects(manifests.text_of(path), str(path), tick):
                for each in unwrapped(item):
                    found.placed.append(Placed(str(path), number, each))
                    found.pods.extend(_found(each, str(path), number))
                tick()
    return found


def _objects(text: str, file: str, tick: Callable[[], None]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        found = documents(text, tick)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{file}: not YAML: {why_not_yaml(error)}") from error
    for number, document in enumerate(found, start=1):
        if document is not None and not isinstance(document, Mapping):
            what = "a list" if isinstance(document, list) else "text"
            raise BadInput(f"{file}: document {number} is {what}, not an object with apiVersion and kind")
        for item in _items(document):
            yield number, item


def _items(document: object, depth: int = DEEPEST) -> Iterator[Mapping[str, Any]]:
    """The objects of a document: all of a List, of a PodList and of Lists in it, one of others, none of an empty one.

    Items of a PodList need not repeat the version and the kind that the list states. One without items is an object
    itself: it says that there are none.
    """
    if not isinstance(document, Mapping) or not depth:
        return
    kind, listed = document.get("kind"), document.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(listed, list):
        yield document
        return
    if kind != "List" and not listed:
        yield document
        return
    named = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for item in listed:
        yield from _items({**named, **item} if isinstance(item, Mapping) else item, depth - 1)


def _found(item: Mapping[str, Any], file: str, document: int) -> Iterator[FoundPod]:
    metadata = item.get("metadata")
    owner = metadata if isinstance(metadata, Mapping) else {}
    kind = _name(item.get("kind") or "Pod")
    namespace = owner.get("namespace") or ("" if _OF_CLUSTERS.match(kind) else _DEFAULT_NAMESPACE)
    for path, raw, pod, malformed in _read_pods(item):
        yield FoundPod(
            file=file,
            document=document,
            path=path,
            kind=kind,
            namespace=_name(namespace),
            name=_name(owner.get("name") or owner.get("generateName") or "(no name)"),
            pod=pod,
            malformed=malformed,
            raw=raw,
            owner=item if path else {},
            owner_annotations=_texts(owner.get("annotations")) if path else {},
        )


def _read_pods(item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Pod | None, str]]:
    """Yield the pods and pod templates of an object: path, as written, as a pod, and why it is none."""
    templates = list(podtemplates.templates(item))
    if not templates and item.get("kind") == "Pod" and item.get("apiVersion") in {"v1", None}:
        templates = [("", item)]
    if str(item.get("apiVersion")).startswith(_DESCRIBING):
        from simulator.controllers import registry  # it loads what talks to clusters
        from simulator.controllers.pods import Malformed

        try:
            templates = [*registry.templates(item)] or templates
        except Malformed as error:
            yield "spec", {}, None, str(error)
            return
    for path, written in templates:
        raw = podtemplates.without_nulls(written)
        pod, malformed = podtemplates.read_pod(raw)
        if pod is not None and not pod.spec.containers:
            pod, malformed = None, "spec.containers is empty: a pod has at least one container"
        yield path, raw, pod, malformed


def _name(value: object) -> str:
    return value if isinstance(value, str) else shown(str(value))


def _texts(entries: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in entries.items()} if isinstance(entries, Mapping) else {}


def understood(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Translate a pod from its own dialect, or say why admission would refuse it.

    One without room for what a Binding writes is refused as well.
    """
    translation = combine.translate(pod, settings)
    if isinstance(translation, Refusal):
        return translation
    return bound_pod.cramped(pod.metadata.annotations, translation) or translation

"""Pods in manifests as people keep them: pods themselves, and the pod templates of objects that make pods.

gpu/podtemplates.py says where they are in an object. Files, folders and standard input; YAML with any number of
documents, Lists, JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from cli import manifestfiles
from cli.documents import documents
from cli.printable import line
from cli.progress import Progress
from cli.refusing import BadInput
from gpu import podtemplates
from gpu.refusal import shown
from wire.core import Pod
from wire.yamlplace import why_not_yaml

_DEFAULT_NAMESPACE: Final = "default"


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
    """One pod or template, and where it stands. ``malformed``: why the API server would not even read it."""

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
        return f"{self.file} document {self.document}: {self.kind} {self.namespace}/{self.name}{template}"


def read(files: Sequence[str], progress: Progress | None = None) -> list[FoundPod]:
    """Find all pods of all files. Raises BadInput for what can't be read, or is no YAML."""
    return read_all(files, progress).pods


def read_all(files: Sequence[str], progress: Progress | None = None) -> Found:
    """Find all pods of all files, and all other objects. Raises BadInput likewise."""
    found, progress = Found([], []), progress or Progress()
    for name in files:
        for path in manifestfiles.expanded(name):

            def tick(file: str = str(path)) -> None:
                progress.tick(lambda: f"reading {line(file)}, objects read: {len(found.placed)}")

            for number, item in _objects(manifestfiles.text_of(path), str(path), tick):
                found.placed.append(Placed(str(path), number, item))
                found.pods.extend(_found(item, str(path), number))
                tick()
    return found


def _objects(text: str, file: str, tick: Callable[[], None]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        found = documents(text, tick)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{file}: not YAML: {why_not_yaml(error)}") from error
    for number, document in enumerate(found, start=1):
        if isinstance(document, str | int | float):
            raise BadInput(f"{file}: document {number} is text, not an object with apiVersion and kind")
        for item in _items(document):
            yield number, item


def _items(document: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a document: all of a List, one of others, none of an empty one or of what is no object."""
    if not isinstance(document, Mapping):
        return
    listed = document.get("items")
    if document.get("kind") == "List" and isinstance(listed, list):
        yield from (item for item in listed if isinstance(item, Mapping))
    else:
        yield document


def _found(item: Mapping[str, Any], file: str, document: int) -> Iterator[FoundPod]:
    metadata = item.get("metadata")
    owner = metadata if isinstance(metadata, Mapping) else {}
    templates = list(podtemplates.templates(item))
    if not templates and (item.get("apiVersion"), item.get("kind")) == ("v1", "Pod"):
        templates = [("", item)]
    for path, raw in templates:
        pod, malformed = podtemplates.read_pod(raw)
        if pod is not None and not pod.spec.containers:
            pod, malformed = None, "spec.containers is empty: a pod has at least one container"
        yield FoundPod(
            file=file,
            document=document,
            path=path,
            kind=_name(item.get("kind") or "Pod"),
            namespace=_name(owner.get("namespace") or _DEFAULT_NAMESPACE),
            name=_name(owner.get("name") or owner.get("generateName") or "(no name)"),
            pod=pod,
            malformed=malformed,
            raw=raw,
            owner=item if path else {},
            owner_annotations=_texts(owner.get("annotations")) if path else {},
        )


def _name(value: object) -> str:
    return value if isinstance(value, str) else shown(str(value))


def _texts(entries: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in entries.items()} if isinstance(entries, Mapping) else {}

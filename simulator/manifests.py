"""Manifests as people write them: YAML with any number of documents, read into what is to be created.

Only kinds that mean something without controllers are taken: a Deployment makes no pods in a simulation, so it is
refused rather than ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from gpu import podtemplates
from kube.client.resources import (
    CONFIG_MAPS,
    CSI_NODES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    STORAGE_CLASSES,
    Resource,
)
from simulator.secrets import SECRETS

#: In the order of creation: what others refer to comes first.
KINDS: Final[tuple[Resource[Any], ...]] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    CONFIG_MAPS,
    SECRETS,
    STORAGE_CLASSES,
    CSI_NODES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
)
ALLOWED: Final = ", ".join(resource.kind for resource in KINDS)
#: libyaml where PyYAML has it: far quicker, at thousands of pods.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFAULT_NAMESPACE: Final = "default"


class MalformedManifest(ValueError):
    """Raised when a document can't be taken; names the place, the value and what is allowed."""


class Manifest(msgspec.Struct, frozen=True):
    """One object to be created. ``origin`` says where it was read, for messages."""

    resource: Resource[Any]
    namespace: str
    body: Mapping[str, Any]
    origin: str

    @override
    def __str__(self) -> str:
        """Name the object and where it came from."""
        metadata = self.body["metadata"]
        name = metadata.get("name") or f"{metadata.get('generateName')}..."
        place = f"{self.namespace}/{name}" if self.namespace else name
        return f"{self.origin}: {self.resource.kind} {place}"


def load(text: str, *, origin: str = "manifest") -> list[Manifest]:
    """Read all documents of a text, ordered for creation. Raises MalformedManifest."""
    try:
        documents = list(yaml.load_all(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise MalformedManifest(f"{origin}: not YAML: {' '.join(str(error).split())}") from error
    return read(documents, origin=origin)


def read(documents: Sequence[object], *, origin: str = "manifest") -> list[Manifest]:
    """Read the documents of one text, ordered for creation. Raises MalformedManifest."""
    manifests = []
    for number, document in enumerate(documents, start=1):
        place = f"{origin} document {number}" if len(documents) > 1 else origin
        manifests += [_read(item, place) for item in _items(document, place)]
    return in_order(manifests)


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Sort for creation by kind; within a kind the order stays."""
    rank = {resource.kind: i for i, resource in enumerate(KINDS)}
    return sorted(manifests, key=lambda manifest: rank[manifest.resource.kind])


def _items(document: object, place: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a document: none of an empty one, all of a List."""
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise MalformedManifest(f"{place}: {_shown(document)} is not an object with apiVersion, kind and metadata")
    if document.get("kind") != "List":
        yield document
        return
    for item in document.get("items") or ():
        yield from _items(item, place)


def _read(document: Mapping[str, Any], place: str) -> Manifest:
    kind, api_version = document.get("kind"), document.get("apiVersion")
    resource = next((each for each in KINDS if each.kind == kind), None)
    if resource is None:
        raise MalformedManifest(f"{place}: kind {_shown(kind)} is not simulated; allowed: {ALLOWED}")
    if api_version != resource.api_version:
        expected = f"{kind} is {resource.api_version}"
        raise MalformedManifest(f"{place}: apiVersion {_shown(api_version)} of {kind}: {expected}")
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        raise MalformedManifest(f"{place}: {kind} without metadata.name")
    namespace = str(metadata.get("namespace") or DEFAULT_NAMESPACE) if resource.namespaced else ""
    manifest = Manifest(resource, namespace, document, place)
    if resource is PODS:
        _, malformed = podtemplates.read_pod(document)
        if malformed:
            raise MalformedManifest(f"{manifest}: {podtemplates.MALFORMED}: {malformed}")
    return manifest


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

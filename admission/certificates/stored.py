"""The Secret and the configurations as they are written: read into what the rules know, and the patches of each step.

The Secret is of type Opaque. One of type ``kubernetes.io/tls`` must bring ``tls.crt`` and ``tls.key`` when it is
applied, if only empty ones, and each ``kubectl apply`` or ``helm upgrade`` would write those over what we keep there.
An empty Opaque one says nothing about its data, so applying it again changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from admission.certificates.pair import Authority, Bundle, Pair, read_bundle, read_pair, write_bundle
from admission.certificates.view import Held, Standing
from wire.admissionregistration import WebhookConfiguration
from wire.core import Secret

#: Of the current pair as in any TLS Secret, and of the next one.
_CURRENT: Final = ("ca.crt", "tls.crt", "tls.key")
_NEXT: Final = ("next-ca.crt", "next-tls.crt", "next-tls.key")
#: cert-manager's, which has several: inject-ca-from, inject-ca-from-secret, inject-apiserver-ca.
_INJECTED: Final = "cert-manager.io/inject-"


def held(secret: Secret) -> Held:
    """Read the Secret. A missing Secret is no pair; one that can't be read is reported."""
    found = [_pair(secret.data or {}, keys) for keys in (_CURRENT, _NEXT)]
    current, following = (each if isinstance(each, Pair) else None for each in found)
    unreadable = "; ".join(each for each in found if isinstance(each, str) and each)
    return Held(secret.metadata.resource_version, current, following, unreadable)


def _pair(data: Mapping[str, str], keys: tuple[str, str, str]) -> Pair | str:
    texts = [_decoded(data.get(key) or "") for key in keys]
    if not any(texts):
        return ""
    made = read_pair(*texts)
    return f"{keys[1]} {made}" if isinstance(made, str) else made


def pairs_patch(current: Pair | None, following: Pair | None) -> dict[str, Any]:
    """Return the merge patch that has the Secret hold these pairs; other keys of it are not ours."""
    return {"data": {**_data(_CURRENT, current), **_data(_NEXT, following)}}


def _data(keys: tuple[str, str, str], pair: Pair | None) -> dict[str, str | None]:
    if pair is None:
        return dict.fromkeys(keys)
    texts = (pair.authority.pem, pair.certificate, pair.key)
    return {key: base64.b64encode(text).decode() for key, text in zip(keys, texts, strict=True)}


def standing(configuration: WebhookConfiguration, *, name: str, since_ns: int) -> Standing:
    """Read a configuration that stands unchanged since this time."""
    annotations = configuration.metadata.annotations or {}
    return Standing(
        name=name,
        version=configuration.metadata.resource_version,
        bundles=tuple(_bundle(each.client_config.ca_bundle) for each in configuration.webhooks or ()),
        since_ns=since_ns,
        injected_by=next((key for key in annotations if key.startswith(_INJECTED)), ""),
    )


def _bundle(text: str | None) -> Bundle:
    return read_bundle(_decoded(text or ""))


def bundles_patch(version: str, bundles: tuple[tuple[Authority, ...], ...]) -> list[dict[str, Any]]:
    """Return the JSON patch that writes the bundles; it fails when the configuration is not at ``version`` any more."""
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        *(
            {
                "op": "add",
                "path": f"/webhooks/{number}/clientConfig/caBundle",
                "value": base64.b64encode(write_bundle(bundle)).decode(),
            }
            for number, bundle in enumerate(bundles)
        ),
    ]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b"?"

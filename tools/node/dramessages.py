"""The messages between kubelet and a driver of ResourceClaims (DRA v1), and those by which it registers.

Only a driver's side: what kubelet sends is read, what it gets is written. Sources: k8s.io/kubelet/pkg/apis/dra/v1 and
pluginregistration/v1; field numbers as there. Reading raises wire.protobuf.Malformed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wire.protobuf import integers, message, parts, strings, text, texts

#: kubelet looks here for sockets of plug-ins, and registers what answers.
REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
REGISTRATION: Final = "pluginregistration.Registration"
SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
#: The kind of plug-in, and the service's name as kubelet wants it to be offered.
_KIND, _VERSION = "DRAPlugin", "v1.DRAPlugin"
#: An empty message.
NOTHING: Final = b""


def plugin_info(driver: str, endpoint: str) -> bytes:
    """PluginInfo: a driver's name and the path of the socket where it serves SERVICE."""
    return text(1, _KIND) + text(2, driver) + text(3, endpoint) + texts(4, (_VERSION,))


@dataclass(frozen=True, slots=True)
class Status:
    """RegistrationStatus: whether kubelet has taken the driver; if not, why."""

    is_registered: bool
    error: str = ""

    @classmethod
    def decode(cls, content: bytes) -> Status:
        """Read it."""
        return cls(any(integers(content, 1)), "".join(strings(content, 2)))


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim by which kubelet asks."""

    namespace: str
    uid: str
    name: str

    @classmethod
    def decode_all(cls, request: bytes) -> tuple[Claim, ...]:
        """Read the claims of NodePrepareResourcesRequest or NodeUnprepareResourcesRequest."""
        return tuple(cls(*("".join(strings(part, number)) for number in (1, 2, 3))) for part in parts(request, 1))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A device of a claim, as it was prepared; ``cdi``: its names in CDI files."""

    requests: Sequence[str]
    pool: str
    device: str
    cdi: Sequence[str]

    def encode(self) -> bytes:
        """Its bytes."""
        return texts(1, self.requests) + text(2, self.pool) + text(3, self.device) + texts(4, self.cdi)


def prepared(answers: Mapping[str, Sequence[Prepared] | str]) -> bytes:
    """NodePrepareResourcesResponse: for each claim's UID its devices, or why it could not be prepared."""
    return _by_uid(
        {
            uid: text(2, answer) if isinstance(answer, str) else b"".join(message(1, each.encode()) for each in answer)
            for uid, answer in answers.items()
        }
    )


def unprepared(uids: Sequence[str]) -> bytes:
    """NodeUnprepareResourcesResponse: these claims have been given back."""
    return _by_uid(dict.fromkeys(uids, NOTHING))


def _by_uid(answers: Mapping[str, bytes]) -> bytes:
    return b"".join(message(1, text(1, uid) + message(2, answer)) for uid, answer in answers.items())

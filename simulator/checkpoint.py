"""What the device managers gave out, kept on disk: after a restart pods find the devices that they had.

Kubelet has such a file as well (``kubelet_internal_checkpoint``), and without it a restart looks like a swap of cards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from simulator.devices import Device, Held

_Index = Annotated[int, msgspec.Meta(ge=0)]


class BadCheckpoint(ValueError):
    """Raised when a file is no checkpoint of this node; names it."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A folder with one file for each node: ``pod UID/container`` -> indices of its devices."""

    folder: Path

    def load(self, node: str, devices: Sequence[Device]) -> Held:
        """Return what was saved last, nothing where nothing was. Raises BadCheckpoint."""
        path = self._path(node)
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=dict[str, list[_Index]])
            return {_key(text): tuple(devices[index] for index in indices) for text, indices in saved.items()}
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, IndexError) as error:
            raise BadCheckpoint(
                f"{path}: not what a node with {len(devices)} GPUs gave out ({error}); remove it to forget it"
            ) from error

    def save(self, node: str, held: Mapping[tuple[str, str], Sequence[Device]]) -> None:
        """Write what is given out, all or nothing."""
        plain = {f"{uid}/{container}": [device.index for device in given] for (uid, container), given in held.items()}
        path = self._path(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(plain))
        fresh.replace(path)

    def _path(self, node: str) -> Path:
        return self.folder / f"{node}.json"


def _key(text: str) -> tuple[str, str]:
    uid, _, container = text.partition("/")
    return uid, container

"""A kubeconfig as kubectl reads it: several files as one, a context, its cluster and its user.

Nothing here runs a plugin or asks an identity provider: ``Chosen.needs_plugin`` says where that has to be done
(kube/client/config.py).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import yaml

from wire.yaml_text import why_not_yaml

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LISTS: Final = ("clusters", "contexts", "users")
#: Keys whose values are paths, relative to the folder of the file that they are in.
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_PLUGINS: Final = ("exec", "auth-provider")
Fields = Mapping[str, Any]


class BadKubeconfig(Exception):
    """Raised for a file that is no kubeconfig, or that lacks what is named; the message is one line."""


class Chosen(msgspec.Struct, frozen=True):
    """What a context names. ``user`` is empty where it names none."""

    cluster: Fields
    user: Fields
    namespace: str

    @property
    def needs_plugin(self) -> bool:
        """Whether a program or an identity provider has to be asked for the user's credentials."""
        return any(self.user.get(key) for key in _PLUGINS)


class Kubeconfig(msgspec.Struct, frozen=True):
    """All files together. ``named``: how to call them in messages."""

    named: str
    current: str
    clusters: Mapping[str, Fields]
    contexts: Mapping[str, Fields]
    users: Mapping[str, Fields]

    def chosen(self, *, context: str = "", cluster: str = "") -> Chosen:
        """Return what a context ("": the current one) names, with another cluster if one is named.

        Raises BadKubeconfig for a name that is not there.
        """
        name = context or self.current
        if not name and not cluster:
            self._refuse("no current-context is set; name one by --context")
        found = self._one("context", self.contexts, name) if name else {}
        user = str(found.get("user") or "")
        where = cluster or str(found.get("cluster") or "")
        return Chosen(
            cluster=self._one("cluster", self.clusters, where),
            user=self._one("user", self.users, user) if user else {},
            namespace=str(found.get("namespace") or ""),
        )

    def _one(self, kind: str, those: Mapping[str, Fields], name: str) -> Fields:
        if name not in those:
            known = f"; it has {', '.join(sorted(those))}" if those else ""
            self._refuse(f"no {kind} {name!r}{known}")
        return those[name]

    def _refuse(self, why: str) -> NoReturn:
        raise BadKubeconfig(f"kubeconfig {self.named}: {why}")


def read(path: str) -> Kubeconfig:
    """Read a file, or several as in KUBECONFIG: of each name, and of current-context, the first one counts.

    Files of several that are not there are left out. Raises BadKubeconfig.
    """
    paths = [Path(each) for each in path.split(os.pathsep) if each]
    there = [each for each in paths if each.is_file()] if len(paths) > 1 else paths
    merged: dict[str, dict[str, Fields]] = {name: {} for name in _LISTS}
    current = ""
    for each in there:
        told = _document(each)
        current = current or str(told.get("current-context") or "")
        for name in _LISTS:
            for key, fields in _named(told.get(name), name.removesuffix("s"), each).items():
                merged[name].setdefault(key, fields)
    return Kubeconfig(path, current, **merged)


def data(fields: Fields, key: str) -> bytes:
    """Return what ``key-data`` holds in base64, b"" without it. Raises BadKubeconfig."""
    try:
        return base64.b64decode(str(fields.get(f"{key}-data") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadKubeconfig(f"kubeconfig: {key}-data is not base64") from error


def impersonation(user: Fields) -> tuple[tuple[str, str], ...]:
    """Return the headers of a user that acts as another one."""
    headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in _list(user.get("as-groups"))]
    extra = user.get("as-user-extra")
    for key, values in extra.items() if isinstance(extra, dict) else ():
        headers += [(f"Impersonate-Extra-{key}", value) for value in _list(values)]
    return tuple((name, str(value)) for name, value in headers if value)


def _document(path: Path) -> Fields:
    try:
        told = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise BadKubeconfig(f"kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        why = why_not_yaml(error) if isinstance(error, yaml.YAMLError) else "not UTF-8 text"
        raise BadKubeconfig(f"{path} is not a kubeconfig: {why}") from error
    if not isinstance(told, dict):
        raise BadKubeconfig(f"{path} is not a kubeconfig")
    return told


def _named(listed: object, kind: str, path: Path) -> dict[str, Fields]:
    """The entries of a list by their names, with absolute paths; of two with one name the first."""
    found: dict[str, Fields] = {}
    if not isinstance(listed, list | None):
        raise BadKubeconfig(f"{path} is not a kubeconfig: {kind}s is no list")
    for entry in listed or ():
        fields = entry.get(kind) or {} if isinstance(entry, dict) else None
        if not isinstance(fields, dict):
            raise BadKubeconfig(f"{path} is not a kubeconfig: a {kind} has no fields")
        paths = {key: str(path.parent / fields[key]) for key in _PATHS if fields.get(key)}
        found.setdefault(str(entry.get("name") or ""), {**fields, **paths})
    return found


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()

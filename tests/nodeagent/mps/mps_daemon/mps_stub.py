"""A control daemon of MPS, version 3, as NVIDIA documents it: state in a file, sockets in folders, no GPU.

``behave`` in the state's folder is JSON: ``hang``: commands with this text in them; ``flood``: every command;
``refuse``: commands by module and verb. ``FAKE_MPS_JOINS``: programs with this in their command line have joined the
namespace that their variable names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

PIPES = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
STATE = PIPES.parent / "state.json"
BEHAVE = PIPES.parent / "behave"
FRESH = {"uid": 0, "memory": "-", "percent": "-"}


def fail(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    raise SystemExit(1)


def listening(folder: Path) -> None:
    """A socket's file; who holds it does not matter here."""
    folder.mkdir(exist_ok=True)
    (folder / "control").unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(folder / "control"))


def daemon() -> None:
    assert sys.argv[1:] == ["-f", "-p", "3", "-m"]
    for folder in PIPES.iterdir():
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    STATE.write_text(json.dumps({"pid": os.getpid(), "servers": {}, "namespaces": {}, "clients": []}))
    listening(PIPES)
    signal.sigwait({signal.SIGTERM})


def read() -> Any:
    state = json.loads(STATE.read_text()) if STATE.exists() else {"pid": 0}
    line = Path(f"/proc/{state['pid']}/cmdline")
    if not line.exists() or not line.read_bytes():  # empty: it has ended, and nobody has waited for it
        fail("Cannot find MPS control daemon process")
    return state


def listed(state: Any, module: str) -> list[str]:
    if module == "server":
        return [f"{name},0,1,Ready,{PIPES}/{name},{its},-" for name, its in state["servers"].items()]
    if module == "client":
        joined = joining(os.environ["FAKE_MPS_JOINS"]) if "FAKE_MPS_JOINS" in os.environ else []
        return joined + [
            f"{pid},{server},0,{namespace},{program}" for pid, server, namespace, program in state["clients"]
        ]
    found = []
    for key, its in state["namespaces"].items():
        server, name = key.split("/")
        found.append(f"{name},{server},Ready,{its['memory']},{its['percent']},0,{PIPES}/{server}/{name}")
    return found


def joining(program: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            line, environ = ((process / which).read_bytes().decode() for which in ("cmdline", "environ"))
        except OSError:
            continue
        folder = dict(each.partition("=")[::2] for each in environ.split("\0")).get("CUDA_MPS_PIPE_DIRECTORY", "")
        if program in line and folder.startswith(f"{PIPES}/"):
            server, name = folder.removeprefix(f"{PIPES}/").split("/")
            found.append(f"{process.name},{server},0,{name},program")
    return found


def changed(state: Any, module: str, verb: str, name: str, given: dict[str, str]) -> None:
    server = given.get("server", name)
    key = f"{server}/{'default' if module == 'server' else name}"
    clients = {(each[1], each[2]) for each in state["clients"]}
    if verb == "create":
        if module == "server":
            state["servers"][name] = given["allowed-devices"]
            listening(PIPES / name)
        elif server not in state["servers"] or key in state["namespaces"]:
            fail(f"can not create {key}")
        listening(PIPES / key)
        state["namespaces"][key] = dict(FRESH)
    elif verb == "set":
        its = state["namespaces"][key]
        its["memory"] = given.get("pinned-memory-limit", its["memory"])
        its["percent"] = f"{float(given['active-thread-percentage']):.2f}"
    elif module == "namespace":
        if (server, name) in clients:
            fail(f"namespace {name} has active clients")
        del state["namespaces"][key]
        shutil.rmtree(PIPES / key)
    else:
        if any(each[0] == name for each in clients):
            fail(f"server {name} has active clients")
        del state["servers"][name]
        state["namespaces"] = {
            each: its for each, its in state["namespaces"].items() if not each.startswith(f"{name}/")
        }
        shutil.rmtree(PIPES / name)


def command() -> None:
    behave = json.loads(BEHAVE.read_text()) if BEHAVE.exists() else {}
    module, verb, *rest = sys.argv[1:]
    if behave.get("hang", "-none-") in " ".join(sys.argv[1:]):
        time.sleep(600)
    while behave.get("flood"):
        sys.stdout.write("x" * 65536)
    if f"{module} {verb}" in behave.get("refuse", []):
        fail(f"{module} {verb} is refused\nand more lines")
    state = read()
    if verb == "list":
        print("\n".join(listed(state, module)))
        return
    name = rest[0]
    changed(state, module, verb, name, dict(word.removeprefix("--").split("=", 1) for word in rest[1:]))
    STATE.write_text(json.dumps(state))


if __name__ == "__main__":
    daemon() if sys.argv[1].startswith("-") else command()

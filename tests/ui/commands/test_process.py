"""``moorage top`` as people call it: on a terminal, for a file, and where there is nothing to see."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from cli.main import main

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[3]
SIMULATED = ("-m", "cli.main", "top", "--simulate", "--nodes", "2x4x24GiB")
PATIENCE_S = 120


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--nodes", "1x1x1GiB"], "--nodes: allowed with --simulate"),
        (["--simulate", "--nodes", "none"], "--nodes: nodes 'none'"),
        (["-n", "a,b"], "--namespace a,b: allowed is the name of a namespace"),
        (["--idle", "--queues"], "--idle: not with --queues"),
        (["--by", "phase"], "invalid choice: 'phase'"),
        (["--kubeconfig", "/no/such"], "/no/such"),
    ],
)
def test_what_can_not_be_is_refused(line: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["top", *line])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_for_a_file_it_is_shown_once_and_without_colours() -> None:
    ended = subprocess.run(
        [sys.executable, *SIMULATED], cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("8 GPUs on 2 nodes  used ")
    assert [line.split()[0] for line in lines if line.startswith("node-")] == ["node-0", "node-1"]
    assert "1 waiting" in lines
    assert "\x1b" not in ended.stdout


def test_a_cluster_that_is_away_is_told_and_not_waited_for(tmp_path: Path) -> None:
    ended = _on("http://127.0.0.1:1", tmp_path)
    assert ended.returncode == 1
    assert "moorage: nodes: " in ended.stderr


class _Refuses(BaseHTTPRequestHandler):
    """An API server for somebody without any rights."""

    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.asked[self.path.partition("?")[0]] += 1
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "not you", "code": 403}
        body = json.dumps(status).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_who_may_not_read_is_told_so_and_asks_once(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        ended = _on(f"http://127.0.0.1:{server.server_port}", tmp_path)
        server.shutdown()
    assert ended.returncode == 1
    assert "moorage: nodes: " in ended.stderr
    assert "not you" in ended.stderr
    assert _Refuses.asked["/api/v1/nodes"] == 1


def _on(server: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``top`` says of an API server."""
    kubeconfig = folder / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        f"clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "top", "--kubeconfig", str(kubeconfig)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_on_a_terminal_keys_change_what_is_shown_and_end_it() -> None:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, *SIMULATED], cwd=REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs
        ) as shown:
            _read_until(ours, "node-1")
            os.write(ours, b"d")
            _read_until(ours, "% used")
            os.write(ours, b"u")
            _read_until(ours, "QUEUES, IN GPUS")
            os.write(ours, b"q")
            rest = _read_until(ours, "\x1b[?1049l")
            assert shown.wait(PATIENCE_S) == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Traceback" not in rest


@pytest.mark.parametrize("width", [60, 100])
def test_once_on_a_terminal_keeps_to_its_width(width: int) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, width))
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    command = [sys.executable, *SIMULATED, "--once"]
    try:
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdin=theirs, stdout=theirs, env={**environment, "NO_COLOR": "1", "TERM": "dumb"}
        ) as shown:
            read = _read_until(ours, "1 waiting")
            assert shown.wait(PATIENCE_S) == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert max(map(len, read.splitlines())) <= width
    assert "node-1" in read


def _read_until(terminal: int, text: str) -> str:
    """Read what is drawn until this is among it."""
    read, give_up_at = "", time.monotonic() + PATIENCE_S
    while text not in read:
        assert time.monotonic() < give_up_at, read
        if select.select([terminal], [], [], 1.0)[0]:
            read += os.read(terminal, 65536).decode(errors="replace")
    return read

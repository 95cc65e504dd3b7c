"""What is recorded: all that a page is made of, when it began, and no secrets."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import stat
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from runtime.text import BadInput
from simulator.clock import VirtualClock
from tests.scheduler.core.objects import NANO, bound, changed, node, pod, pod_group, queue, reservation
from tests.ui.page.reviews import Reviewer
from tests.ui.page.test_frames import Story, as_sets, drawn
from ui.page.index import FORM, decode, take
from ui.page.objects import Objects, kept, kept_queue
from ui.page.recording import Recording
from ui.page.stream import Frames
from ui.page.values import Changes, EventLine
from ui.page.watch import Following
from wire.core import ObjectMeta
from wire.crds.queue import QueueStatus

VIRTUAL_TIME = True

HALF = NANO // 2
TENANT = bound(pod("t", fraction="0.5", group="gang"), "n1", ("g", HALF), uuid="GPU-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def whole(objects: Objects) -> dict[str, Any]:
    return as_sets(drawn(Frames(objects, "e")))


def write(path: Path, text: str) -> None:
    path.write_text(text)


def written(path: Path) -> tuple[str, int]:
    """What is in the file, and who may read it."""
    return path.read_text(), stat.S_IMODE(path.stat().st_mode)


def replayed(path: Path) -> Objects:
    """A page that is told all lines of a file that are whole."""
    objects = Objects()
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            take(objects, decode(line))
    return objects


class RecordedStory(Story):
    """A random story that is written down."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__(seed)
        self.store = Recording(path, lambda: None)


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_recorded_is_shown_again(path: Path, seed: int) -> None:
    story = RecordedStory(seed, path)
    assert isinstance(story.store, Recording)
    for _ in range(80):
        story.step()
        await anyio.sleep(0.5)
    story.store.close()
    assert whole(replayed(path)) == whole(story.store)


async def test_the_file_says_when_it_was_begun_and_when_what_happened(path: Path) -> None:
    recording = Recording(path, lambda: None, clock=VirtualClock(asyncio.get_running_loop(), epoch_ns=5_000_000_000))
    await anyio.sleep(3)
    recording.put_node(node())
    recording.close()
    first, second = map(decode, written(path)[0].encode().splitlines())
    began_s = anyio.current_time() - 3
    assert (first.form, first.at_ms, first.began_ms) == (FORM, 0, round(5000 + began_s * 1000))
    assert second.at_ms == 3000


async def test_all_kinds_are_recorded_with_what_a_path_tells(path: Path) -> None:
    recording = Recording(path, lambda: None)
    held = reservation("g", book={"uid-t": HALF}, index=3)
    for obj in (node(gpus=1, mem_mib=1024), TENANT, held, pod_group("gang", 2)):
        {"Node": recording.put_node, "Pod": recording.put_pod, "PodGroup": recording.put_group}[type(obj).__name__](obj)  # type: ignore[operator]
    recording.put_event(EventLine(key="ns/e", namespace="ns", pod="t", reason="Scheduled"))
    recording.close()
    frames, again = Frames(recording, "e"), Frames(replayed(path), "e")
    assert as_sets(drawn(frames)) == as_sets(drawn(again)) != as_sets(Changes())
    assert frames.path("ns", "t") == again.path("ns", "t")
    assert [part.index for part in (again.path("ns", "t") or pytest.fail("no path")).given] == [3]


async def test_no_secret_gets_into_the_file(path: Path) -> None:
    container = {
        "name": "main",
        "command": ["run", "secret-1"],
        "args": ["secret-2"],
        "env": [{"name": "KEY", "value": "secret-3"}],
        "envFrom": [{"configMapRef": {"name": "secret-4"}}],
    }
    asking = pod("t", fraction="0.5", spec={"containers": [container], "initContainers": [container]})
    annotations = {
        **(asking.metadata.annotations or {}),
        "kubectl.kubernetes.io/last-applied-configuration": "secret-5",
    }
    recording = Recording(path, lambda: None)
    recording.put_pod(kept(changed(asking, annotations=annotations)))
    applied = ObjectMeta(name="other", namespace="ns", annotations=annotations)
    recording.put_node(msgspec.structs.replace(node(), metadata=applied))
    recording.put_group(msgspec.structs.replace(pod_group("gang"), metadata=applied))
    recording.close()
    text, mode = written(path)
    assert "secret" not in text
    assert '"name":"t"' in text
    assert mode == 0o600


async def test_a_queue_is_recorded_once_whatever_is_reported_of_its_use(path: Path) -> None:
    recording = Recording(path, lambda: None)
    for children in ("a", "b"):
        reported = msgspec.structs.replace(queue("q"), status=QueueStatus(child_queues=[children]))
        recording.put_queue(kept_queue(reported))
    recording.close()
    assert written(path)[0].count("writtenQueue") == 1
    assert replayed(path).queues == {"q": kept_queue(queue("q"))}


async def test_a_file_that_is_there_is_left_alone(path: Path) -> None:
    write(path, "mine")
    with pytest.raises(BadInput, match="File exists"):
        Recording(path, lambda: None)
    assert written(path)[0] == "mine"


async def test_a_full_disk_ends_the_recording_and_not_the_page(path: Path) -> None:
    recording = Recording(path, lambda: None)
    recording.put_node(node())
    size = len(written(path)[0])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
    try:
        recording.put_pod(TENANT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    recording.put_node(node("n2"))
    recording.close()
    assert sorted(recording.nodes) == ["n1", "n2"]
    assert len(recording.pods) == 1
    following = Following(Reviewer({}, {}).api(), recording, rng=random.Random(0))
    assert following.troubles() == ("the recording has ended: File too large",)
    assert list((replayed(path)).nodes) == ["n1"]

from __future__ import annotations

from pathlib import PurePosixPath

from nodeagent.core.enforcement.container_edits import Edits, Mount, Scratch, merged

LIBRARY = Mount(PurePosixPath("/opt/l.so"), PurePosixPath("/usr/l.so"), is_code=True)
CACHE = Mount(PurePosixPath("/var/c"), PurePosixPath("/run/c"), is_writable=True)


def test_a_mount_may_do_no_more_than_it_says() -> None:
    assert LIBRARY.written() == {
        "hostPath": "/opt/l.so",
        "containerPath": "/usr/l.so",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }
    assert CACHE.written()["options"] == ["nosuid", "nodev", "rbind", "rprivate", "noexec"]


def test_memory_of_a_container_is_bounded() -> None:
    assert Scratch(PurePosixPath("/run/lock"), 64).written() == {
        "hostPath": "tmpfs",
        "containerPath": "/run/lock",
        "type": "tmpfs",
        "options": ["size=64k", "nr_inodes=64", "mode=1777", "nosuid", "nodev", "noexec"],
    }


def test_nothing_empty_is_written() -> None:
    assert Edits().written() == {}
    assert Edits(env={"B": "2", "A": "1"}).written() == {"env": ["A=1", "B=2"]}


def test_a_variable_that_is_not_given_any_more_stays_beside_the_same_mounts() -> None:
    former = Edits((LIBRARY, CACHE), {"MEMORY": "1", "COMPUTE": "1"})
    moved = Mount(PurePosixPath("/moved/l.so"), LIBRARY.at, is_code=True)
    assert Edits((CACHE, moved), {"COMPUTE": "2"}).with_former(former) == Edits(
        (CACHE, moved), {"MEMORY": "1", "COMPUTE": "2"}
    )
    assert Edits((CACHE,), {"COMPUTE": "2"}).with_former(former) == Edits((CACHE,), {"COMPUTE": "2"})
    assert former.with_former(None) == former


def test_several_parts_are_put_together() -> None:
    both = merged([Edits((LIBRARY,), {"A": "1", "B": "1"}), Edits((CACHE, LIBRARY), {"B": "2"})])
    assert both == Edits((LIBRARY, CACHE), {"A": "1", "B": "2"})

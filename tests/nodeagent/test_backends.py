from __future__ import annotations

from pathlib import Path

from gpu.limits import BACK_ENDS
from nodeagent.app import AgentSettings, back_ends


def test_a_back_end_is_off_unless_it_is_switched_on() -> None:
    assert list(back_ends(AgentSettings(node="n"))) == []


def test_each_back_end_is_one_that_pods_are_given_limits_for() -> None:
    all_on = back_ends(
        AgentSettings(node="n", hami_core=Path("/usr/local/vgpu/libvgpu.so"), mps_keeper=Path("/run/keeper.sock"))
    )
    assert [one.name for one in all_on] == list(BACK_ENDS)


def test_a_library_is_looked_at_where_the_agent_sees_it(tmp_path: Path) -> None:
    seen_at = tmp_path / "libvgpu.so"
    seen_at.write_bytes(b"\x7fELF\x02\x01\x01")
    on_host = Path("/nowhere/libvgpu.so")
    (it,) = back_ends(AgentSettings(node="n", hami_core=on_host, hami_core_seen_at=seen_at, limits=tmp_path))
    seen_at.chmod(0o644)
    assert it.trouble() == ""

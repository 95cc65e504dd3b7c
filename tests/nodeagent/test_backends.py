from __future__ import annotations

from pathlib import Path

from gpu.agentlimits import BACK_ENDS
from nodeagent.backends import back_ends
from nodeagent.settings import AgentSettings


def test_a_back_end_is_off_unless_it_is_switched_on() -> None:
    assert list(back_ends(AgentSettings(node="n"))) == []


def test_each_back_end_is_one_that_pods_are_given_limits_for() -> None:
    all_on = back_ends(AgentSettings(node="n", hami_core=Path("/usr/local/vgpu/libvgpu.so")))
    assert [one.name for one in all_on] == list(BACK_ENDS)

"""Edits are read as they are written, and refused with what is allowed."""

from __future__ import annotations

import pytest

from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Family, NotPossible


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("gpu-fraction=0.3", Family.ASK_LESS),
        ("gpu-memory=8000", Family.ASK_LESS),
        ("gpus=2", Family.ASK_LESS),
        ("cpu=1500m", Family.ASK_LESS),
        ("memory=8192Mi", Family.ASK_LESS),
        ("members=6", Family.FEWER_MEMBERS),
        ("queue=team-b", Family.QUEUE),
        ("limit team-a gpu=16", Family.QUEUE),
        ("limit team-a gpu=-1", Family.QUEUE),
        ("quota team-a cpu=1.5", Family.QUEUE),
        ("quota team-a memory=8000000000", Family.QUEUE),
        ("weight team-a gpu=2", Family.QUEUE),
        ("weight team-a gpu=0.5", Family.QUEUE),
        ("without nodeSelector", Family.WITHOUT_CONSTRAINT),
        ("without nodeSelector zone", Family.WITHOUT_CONSTRAINT),
        ("without podAntiAffinity", Family.WITHOUT_CONSTRAINT),
        ("tolerate dedicated=ml:NoSchedule", Family.WITHOUT_CONSTRAINT),
        ("tolerate dedicated:NoExecute", Family.WITHOUT_CONSTRAINT),
        ("node +2 like n17", Family.MORE_NODES),
        ("drain n4", Family.ENDED),
        ("cordon n4", Family.ENDED),
        ("finish job-x", Family.ENDED),
        ("finish team/job-x", Family.ENDED),
    ],
)
def test_what_is_read_is_written_as_it_was(text: str, family: Family) -> None:
    edit = read_edit(text)
    assert (edit.spelled(), edit.family) == (text, family)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "allowed: gpu-fraction=0.3"),
        ("gpu=2", "gpu=2 is no what-if; allowed: gpu-fraction=0.3"),
        ("more", "'more' is no what-if; allowed"),
        ("gpu-fraction=1.5", "allowed is a part of one GPU above 0 and up to 1"),
        ("gpu-fraction=0", "above 0 and up to 1"),
        ("gpu-fraction=x", "gpu-fraction=x: "),
        ("gpus=0", "allowed is a whole number from 1"),
        ("gpus=" + "9" * 300, "allowed is a whole number from 1"),
        ("cpu=-1", "cpu=-1: allowed is an amount above 0"),
        ("members=six", "members=six: allowed is a whole number from 1"),
        ("limit team-a", "allowed is limit QUEUE RESOURCE=AMOUNT with cpu, memory or gpu"),
        ("limit team-a tpu=1", "allowed is limit QUEUE RESOURCE=AMOUNT"),
        ("limit team-a gpu=-2", "allowed is -1 for no limit, or a number from 0"),
        ("weight team-a gpu=-1", "weight gpu=-1: allowed is a number from 0"),
        ("quota team-a gpu=many", "quota gpu=many: "),
        ("without", "allowed is without nodeSelector, nodeAffinity"),
        ("without nodeAffinity zone", "or without nodeSelector KEY"),
        ("tolerate x", "allowed is tolerate KEY"),
        ("finish", "allowed is finish"),
        ("finish team/", "allowed is finish"),
        ("node 2 like n1", "allowed is node"),
        ("node +2", "allowed is node"),
        ("drain", "allowed is drain NODE"),
        ("gpus=1" + " " * 500, "a what-if of 506 characters: allowed are 400"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    with pytest.raises(NotPossible) as refused:
        read_edit(text)
    assert allowed in str(refused.value)

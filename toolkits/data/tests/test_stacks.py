"""Stacks of other threads: what they are at, read while nothing is collected."""

import gc
import sys
import threading

import pytest

from distcore_data import stacks


def waits(begun, over):
    begun.set()
    over.wait()


@pytest.fixture
def thread():
    begun, over = threading.Event(), threading.Event()
    made = threading.Thread(target=waits, args=(begun, over))
    made.start()
    begun.wait()
    yield made
    over.set()
    made.join()


def test_calls_are_told_from_the_innermost_on(thread):
    calls = stacks.stack_of(thread.ident)
    names = [each.code.co_name for each in calls]
    assert names[-4:] == ["waits", "run", "_bootstrap_inner", "_bootstrap"]
    waiting = calls[names.index("waits")]
    assert waiting.line == waits.__code__.co_firstlineno + 2
    assert stacks.stack_of(thread.ident) == stacks.stacks()[thread.ident]


def test_a_thread_that_is_over_has_none():
    assert stacks.stack_of(0) == []


def test_own_calls_from_a_frame_on():
    (first, *_) = stacks.calls_of(sys._getframe())
    assert first.code.co_name == "test_own_calls_from_a_frame_on"
    assert stacks.calls_of(None) == []


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_meanwhile(monkeypatch, collects):
    """A collection would let the other thread go on while its frames are read."""
    right, seen = stacks.calls_of, []
    monkeypatch.setattr(
        stacks, "calls_of", lambda frame: seen.append(gc.isenabled()) or right(frame)
    )
    if not collects:
        gc.disable()
    try:
        stacks.stacks()
        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert seen
    assert not any(seen)

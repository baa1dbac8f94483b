"""What a message between two processes costs, measured in two processes."""

import multiprocessing
import os
import time

import pytest

from distcore_core.errors import TrainingError
from distcore_torch.training import link


def die_or_wait(index, world, store, say, parent):
    """One dies before they meet; the other waits for it."""
    if index == 1:
        os._exit(3)
    time.sleep(3600)


def test_of_two_processes_of_which_one_dies_the_other_is_not_waited_for(monkeypatch):
    """It would wait half an hour in gloo, and `distcore doctor --calibrate` with it."""
    monkeypatch.setattr(link, "_rank", die_or_wait)
    began = time.monotonic()
    with pytest.raises(TrainingError, match="could not meet over gloo"):
        link.measured()
    assert time.monotonic() - began < 300
    assert not multiprocessing.active_children()

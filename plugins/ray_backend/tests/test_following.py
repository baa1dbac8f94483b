"""The driver's thread that hears of a worker group's progress."""

import threading
import time
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import GetTimeoutError, RayError

from distcore_ray import pulse
from distcore_ray.coordinator import Following, News

COORDINATOR = SimpleNamespace(news=SimpleNamespace(remote=lambda: "asked"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    pulse.begin()
    monkeypatch.setattr(Following, "SECONDS", 0.01)


def test_progress_goes_on_after_a_slow_answer(monkeypatch):
    """It stayed as it was to the end of the training."""
    late, heard, slow = iter([True, True]), [], iter([True])

    def get(asked, timeout):
        if next(late, False):
            raise GetTimeoutError
        return News()

    def hear(news):
        heard.append(news)
        if next(slow, False):  # it asks for the rounds
            raise GetTimeoutError

    monkeypatch.setattr(ray, "get", get)
    following = Following(COORDINATOR, hear)
    end = time.monotonic() + 30
    while len(heard) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    following.close()
    assert len(heard) >= 3


@pytest.mark.parametrize("error", [GetTimeoutError, RayError])
def test_a_cluster_that_never_answers_holds_up_no_end(monkeypatch, error):
    def get(asked, timeout):
        raise error

    monkeypatch.setattr(ray, "get", get)
    following = Following(COORDINATOR, lambda news: None)
    closing = threading.Thread(target=following.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()

"""How many processes exact training takes, and that it takes them: the same bits, none lost."""

import time

import pytest

from distcore_core.progress import Progress
from distcore_local import processes
from distcore_local.processes import Length, Pace, saved_seconds, sharing
from distcore_torch.training.heartbeat import COMPUTING, heartbeat


@pytest.mark.parametrize(
    ("parts", "most", "expected"),
    [(8, 1, 1), (8, 2, 2), (8, 3, 3), (8, 5, 4), (8, 7, 4), (8, 64, 8), (4, 3, 2), (1, 8, 1)],
)
def test_no_process_is_taken_that_would_not_make_the_largest_share_smaller(parts, most, expected):
    assert sharing(parts, most) == expected


@pytest.mark.parametrize(
    ("length", "step", "expected"),
    [
        (Length(1000, 100, 0), 40, 960),
        (Length(1000, 100, 5), 40, 460),  # after five rounds without a better one it may end
        (Length(300, 100, 5), 40, 260),
        (Length(1000, 100, 5), 700, 0),
    ],
)
def test_steps_that_are_sure_to_come(length, step, expected):
    assert length.sure(step) == expected


def test_a_share_saves_less_than_it_takes_away():
    assert 0 < saved_seconds(0.1, 8, 2) < 0.05
    assert saved_seconds(0.1, 8, 2) < saved_seconds(0.1, 8, 3) < saved_seconds(0.1, 8, 4) < 0.075
    assert saved_seconds(0.0001, 8, 2) < 0  # it takes longer to meet than to compute


class Training:
    """Steps of so many seconds each, as a loop tells of them, until it is asked to stop."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.progress = seconds, Progress()

    def steps(self, count: int) -> None:
        beat = heartbeat()
        self.progress.begin("train", 10_000, "steps")
        for step in range(1, count + 1):
            with beat.during(COMPUTING):
                time.sleep(self.seconds)
            self.progress.done = step
            if self.progress.stop:
                return


def test_a_long_run_of_long_steps_is_asked_to_go_on_in_several(monkeypatch):
    monkeypatch.setattr(processes, "MEASURED_SECONDS", 0.05)
    training = Training(0.01)
    with Pace(training.progress, Length(10_000, 100, 0), 8, 2) as pace:
        training.steps(300)
        assert pace.processes == 2
        assert training.progress.stop == "Going on in 2 processes: the same bits, sooner."
    assert training.progress.stop is False, "the next training with it is not stopped"


@pytest.mark.parametrize(
    ("length", "most"),
    [(Length(100, 10, 0), 2), (Length(10_000, 10, 5), 2), (Length(10_000, 100, 0), 1)],
)
def test_one_that_may_be_over_soon_or_has_no_room_is_left_alone(monkeypatch, length, most):
    monkeypatch.setattr(processes, "MEASURED_SECONDS", 0.05)
    training = Training(0.01)
    with Pace(training.progress, length, 8, most) as pace:
        training.steps(60)
    assert pace.processes == 1
    assert training.progress.stop is False

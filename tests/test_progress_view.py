"""Progress: plain lines if there is no terminal, bars if there is one, and the work never waits."""

import io
import threading

from distcore.workflow.progress_view import ProgressView, line_of
from distcore_core.progress import Progress


def test_a_plain_line_for_each_stage() -> None:
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, stream=stream):
        progress.begin("preprocess", total=100)
        progress.done = 100
        progress.begin("train", total=4, unit="steps", rows_per_unit=32)
        progress.done = 4
        progress.end()
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["preprocess", "train"]
    assert "100 rows" in lines[0]
    assert "128 rows" in lines[1]


def test_bars_show_stage_rate_and_loss() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream, progress = Terminal(), Progress()
    with ProgressView(progress, stream=stream) as view:
        progress.begin("train", total=10, unit="steps", rows_per_unit=100)
        progress.done, progress.loss = 5, 0.25
        view._stop.wait(0.7)
        progress.end()
    assert "train" in stream.getvalue()
    assert "loss 0.2500" in stream.getvalue()


def test_the_thread_ends_with_the_view() -> None:
    with ProgressView(Progress(), stream=io.StringIO()):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "distcore-progress"]


def test_none_draws_nothing() -> None:
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, "none", stream):
        progress.begin("train")
    assert stream.getvalue() == ""


def test_line_without_rows_has_only_the_time() -> None:
    assert line_of("report", 0, 1.25) == "report      1.2 s"


def test_the_library_draws_only_where_somebody_looks() -> None:
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, "interactive", stream):
        progress.begin("train")
    assert stream.getvalue() == ""

"""Progress: plain lines without a terminal, bars with one, a line a round, and the work never
waits."""

import io
import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO

import pytest
from tests.conftest import a_round

from distcore.cli.arguments import set_up_logging
from distcore.cli.main import main
from distcore.workflow import progress_view
from distcore.workflow.progress_bars import TerminalBars
from distcore.workflow.progress_text import closing, line_of, round_line, short, status_of
from distcore.workflow.progress_view import ProgressView
from distcore.workflow.training_log import _Writer, training_log
from distcore_core.progress import Progress, Stage
from distcore_data.seals import MOST_BYTES, read_lines, sealed, unsealed
from distcore_testing.rank_jobs import until

ROOT = Path(__file__).parent.parent
PENGUINS = ROOT / "examples" / "penguins"
PROGRAM = (sys.executable, "-m", "distcore")


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


def test_steps_of_nobody_knows_how_many_rows_are_no_rows() -> None:
    """A trainer's three epochs were told as `train 3 rows`."""
    progress = Progress()
    progress.begin("train", total=3, unit="epochs")
    progress.done = 3
    assert "rows" not in status_of(progress)
    progress.end()
    assert "rows" not in line_of(progress.stages_finished[0])


def test_what_was_done_before_counts_for_no_rate_and_no_time(monkeypatch) -> None:
    progress = Progress()
    progress.begin("train", total=100, unit="steps", rows_per_unit=10)
    progress.done = progress.first = 90
    assert "rows/s" not in status_of(progress)
    assert "so far" in status_of(progress)
    monkeypatch.setattr(progress, "started", progress.started - 5)
    progress.done = 95
    assert "step 95 of 100 (95 %), 10 rows/s, 5.0 s left" in status_of(progress)
    progress.end()
    assert line_of(progress.stages_finished[0]) == "train       50 rows in 5.0 s (10 rows/s)"


def test_training_tells_its_own_rows_and_a_search_none(tmp_path: Path, capsys, monkeypatch) -> None:
    given, out = words(tmp_path)[len(PROGRAM) + 1 :], [""]

    def told(stage: str, command: str, *more: str) -> str:
        assert main([command, *given, *more]) == 0
        said = capsys.readouterr()
        out[:], lines = said.out.splitlines(), said.err.splitlines()
        return next(line for line in lines if line.startswith(f"{stage} "))

    line = told("train", "train", "--set", "trainer.epochs=2")
    run = tmp_path / "experiment_run"
    rows = json.loads((run / "description.json").read_text())["data"]["rows"]["train"]
    assert rows % 32
    assert line.startswith(f"train       {2 * rows} rows in ")
    there = ("--model_resume_path", str(run))
    line = told("train", "train", "--set", "trainer.epochs=2", *there)
    assert re.fullmatch(r"train +[\d.]+ s", line)
    section = (
        "hyperopt={metric: loss, output_feature: combined, parameters: {trainer.learning_rate: "
        "{space: choice, categories: [0.1]}}, executor: {type: local, num_samples: 1}}"
    )
    monkeypatch.chdir(tmp_path)
    given[-1] = "found"
    line = told("trials", "hyperopt", "--set", section, "--set", "trainer.epochs=1")
    assert re.fullmatch(r"trials +[\d.]+ s", line)
    assert out[-1] == "found/hyperopt_run/model"  # as it was given


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_show_stage_rate_and_loss() -> None:
    stream, progress = Terminal(), Progress()
    with ProgressView(progress, stream=stream):
        progress.begin("train", total=10, unit="steps", rows_per_unit=100)
        progress.done, progress.loss = 5, 0.25
        assert until(lambda: "loss 0.2500" in stream.getvalue())
        progress.end()
    assert "train" in stream.getvalue()


def test_on_a_low_terminal_the_latest_rounds_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten rounds of two lines each and four bars the latest were cut off while training ran."""

    for name, value in {"LINES": "24", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    stream, progress = Terminal(), Progress()

    def frame() -> list[str]:
        """What is drawn next, by lines."""
        with drawn._bars.live._lock:  # its thread draws too
            stream.truncate(stream.seek(0))
            drawn._bars.refresh()
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
        return text.replace("\r", "").split("\n")

    with TerminalBars.open(progress, stream) as drawn:
        for stage in ("read", "preprocess", "load", "train"):
            progress.begin(stage, total=30)
            drawn.look()
        progress.tell(a_round(1, 0.5, 0.5, 1))
        assert [line[:11] for line in frame()[4:]] == ["epoch 1/30 ", "so far"]
        for evaluation in range(2, 13):
            progress.tell(a_round(evaluation, 0.5, 0.5, 1))
        lines = frame()
        rounds = [line.split()[1] for line in lines if line.startswith("epoch")]
        assert len(lines) <= 24
        assert rounds == [f"{number}/30" for number in range(4, 13)]
        assert lines[4] == "(3 earlier rounds)"
    last = stream.getvalue().rpartition("preprocess")[2]
    assert last.count("epoch ") == 10  # under it nothing is drawn any more


def test_a_line_and_its_end_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the thread that draws writes between them: ".../experiment_runepoch 3"."""
    written: list[str] = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr(sys, "stderr", stream)
    set_up_logging("info")
    logging.getLogger("distcore").info("Training goes on.")
    assert main(["train", "--config_str", "nothing: here", "--dataset", "none.csv"]) == 2
    assert written[0] == "Training goes on.\n"
    assert len(written) > 1
    assert [each for each in written if not each.endswith("\n")] == []


def test_the_thread_ends_with_the_view() -> None:
    with ProgressView(Progress(), stream=io.StringIO()):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "distcore-progress"]


class Closed(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.close()


class OnlyWrites:
    """As programs have it that send what is printed to their log."""

    def write(self, text: str) -> None:
        raise AssertionError(f"nobody looks, but it was told {text!r}")


@pytest.mark.parametrize("stream", [None, Closed(), OnlyWrites()])
@pytest.mark.parametrize("style", ["interactive", "lines"])
def test_a_program_may_have_no_standard_error(
    monkeypatch: pytest.MonkeyPatch, stream: IO[str] | None, style: str
) -> None:
    """As services have; whoever trained there got an AttributeError."""
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressView(Progress(), style) as view:
        assert view.drawing == (style == "lines")


def test_none_draws_nothing() -> None:
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, "none", stream):
        progress.begin("train")
    assert stream.getvalue() == ""


def test_line_without_rows_has_only_the_time() -> None:
    assert line_of(Stage("report", 0, 1.25, 1.0)) == "report      1.2 s"


def test_the_library_draws_only_where_somebody_looks() -> None:
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, "interactive", stream):
        progress.begin("train")
    assert stream.getvalue() == ""


# ------------------------------------------------------------------ rounds


def test_a_round_is_one_line() -> None:
    assert round_line(a_round(3, 0.8025, 0.8025, 3)) == (
        "epoch 3/30   train loss 0.4000   validation loss 0.5000, roc_auc 0.8025   best so far"
    )
    assert round_line(a_round(4, 0.8, 0.8025, 3)).endswith("best 0.8025 at 3, patience 4")
    assert round_line(a_round(1, None, None, None)).endswith("no finite roc_auc yet")
    assert round_line(a_round(4, 0.4, None, None, split="training")).endswith("roc_auc 0.4000")
    assert round_line(a_round(5, 0.9, 0.9, 5, epoch=2.5)).startswith("evaluation 5, epoch 2.50/30 ")


def test_with_several_outputs_each_number_says_whose_it_is() -> None:
    metrics = {
        "validation": {
            "a": {"loss": 1.0, "rmse": 82.25},
            "b": {"loss": 2.0},
            "combined": {"loss": 3.0},
        }
    }
    line = round_line(a_round(1, 82.25, 82.25, 1, metrics=metrics, feature="a", metric="rmse"))
    assert "validation combined loss 3.0000, a rmse 82.2500 " in line


def test_the_end_says_how_it_came() -> None:
    assert (
        closing([a_round(11, 0.79, 0.8025, 6)])
        == "stopped early at evaluation 11; best was 6 by roc_auc 0.8025"
    )
    assert (
        closing([a_round(30, 0.79, 0.8025, 25)])
        == "trained 30 epochs; best was 25 by roc_auc 0.8025"
    )
    assert (
        closing([a_round(12, 0.79, 0.8025, 11)])
        == "ended after 12 epochs; best was 11 by roc_auc 0.8025"
    )
    one = closing([a_round(1, 0.79, 0.8025, 1)])
    assert one == "ended after 1 epoch; best was 1 by roc_auc 0.8025"
    last = closing([a_round(30, 0.4, None, None, split="training")])
    assert last == "trained 30 epochs; the last is kept, for there are no validation rows"
    forest = closing([a_round(30, None, None, None, unit="round")])
    assert forest == "trained 30 rounds; no round had a finite roc_auc"
    none = closing([a_round(30, None, None, None)])
    assert none == "trained 30 epochs; no evaluation had a finite roc_auc"
    assert closing([]) == ""


def test_a_long_silence_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_view, "SILENCE", 0.3)
    stream, progress = io.StringIO(), Progress()
    with ProgressView(progress, "lines", stream):
        progress.begin("train", total=3000, unit="steps", rows_per_unit=32)
        progress.done = 120
        assert until(lambda: stream.getvalue().count("step 120 of 3,000 (4 %)") > 1)
        assert " left" in stream.getvalue()


def test_the_log_of_a_resumed_run_holds_each_round_once(tmp_path: Path) -> None:
    log = tmp_path / "training_log.jsonl"
    for evaluations in ((1, 2, 3), (3, 4)):
        progress = Progress()
        with training_log(progress, tmp_path):
            for evaluation in evaluations:
                progress.tell(a_round(evaluation, 0.5, 0.5, 1))
        log.write_text(log.read_text() + '{"evaluation": 9, "st')
    assert [each["evaluation"] for each in read_lines(log)] == [1, 2, 3, 4]


def test_the_log_holds_once_what_workers_that_were_started_again_do_again(tmp_path: Path) -> None:
    """One of two was killed after an evaluation and before its checkpoint: both did it again, and
    the log told it twice."""
    progress = Progress()
    with training_log(progress, tmp_path):
        for evaluation in (1, 2, 3, 2, 3, 4):
            progress.tell(a_round(evaluation, 0.5, 0.5, 1))
    rounds = read_lines(tmp_path / "training_log.jsonl")
    assert [each["evaluation"] for each in rounds] == [1, 2, 3, 4]


def test_a_long_log_is_gone_on_with(tmp_path: Path) -> None:
    """It was longer than what is read back at once, and so emptied by the next round."""
    log = tmp_path / "training_log.jsonl"
    wide = {"validation": {"y": {f"{'x' * 100_000}{number}": 1.0 for number in range(100)}}}
    rounds = [a_round(each, 0.5, 0.5, 1, metrics=wide) for each in range(1, 9)]
    log.write_bytes(b"".join(sealed(asdict(each), line=True) for each in rounds))
    assert log.stat().st_size > MOST_BYTES
    progress = Progress()
    with training_log(progress, tmp_path):
        progress.tell(a_round(8, 0.5, 0.5, 1))
        progress.tell(a_round(9, 0.5, 0.5, 1))
    lines = log.read_bytes().splitlines(keepends=True)
    assert [unsealed(each)["evaluation"] for each in lines] == [*range(1, 10)]
    assert len(lines[7]) < 1000 < len(lines[6])


def test_a_line_that_was_changed_costs_no_other(tmp_path: Path) -> None:
    log, progress = tmp_path / "training_log.jsonl", Progress()
    with training_log(progress, tmp_path):
        for evaluation in (1, 2, 3):
            progress.tell(a_round(evaluation, 0.5, 0.5, 1))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + lines[1].replace(b"loss", b"less") + lines[2])
    progress = Progress()
    with training_log(progress, tmp_path):
        progress.tell(a_round(3, 0.5, 0.5, 1))
        progress.tell(a_round(4, 0.5, 0.5, 1))
    assert [each["evaluation"] for each in read_lines(log)] == [1, 3, 4]


def test_what_is_no_file_in_the_logs_place_ends_the_log_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "training_log.jsonl")
    progress = Progress()
    with training_log(progress, tmp_path):
        progress.tell(a_round(1, 0.5, 0.5, 1))
    assert "cannot be written and ends here: it is no file" in caplog.text


def test_a_link_in_the_logs_place_leaves_what_it_leads_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a run of somebody else that is gone on with; the first round drops later ones."""
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"mine\nhalf a line")
    for first in (math.inf, 3):
        (folder := tmp_path / f"run-{first}").mkdir()
        (folder / "training_log.jsonl").symlink_to(theirs)
        writer = _Writer(folder / "training_log.jsonl")
        writer._last_step = first
        writer.write(a_round(1, 0.5, 0.5, 1))
    assert theirs.read_bytes() == b"mine\nhalf a line"
    assert caplog.text.count("cannot be written and ends here: it is") == 2


# ------------------------------------------------------------------ as people see it


def words(tmp_path: Path, backend: str = "local") -> list[str]:
    """The command that trains on the penguins, whose cache then lies in the folder."""
    config, data = tmp_path / "config.yaml", tmp_path / "penguins.csv"
    text = (PENGUINS / "config.yaml").read_text()
    config.write_text(text.replace("backend: local", f"backend: {backend}"))
    shutil.copy(PENGUINS / "penguins.csv", data)
    return [
        *PROGRAM,
        "train",
        "--config",
        str(config),
        "--dataset",
        str(data),
        "-od",
        str(tmp_path),
    ]


@pytest.mark.system
def test_a_pipe_gets_a_line_an_epoch_and_the_report_last(tmp_path: Path) -> None:
    done = subprocess.run(words(tmp_path), capture_output=True, text=True, timeout=300, check=True)
    lines = done.stderr.splitlines()
    epochs = [
        line
        for line in lines
        if re.match(r"epoch \d+/40   train loss [\d.]+   validation loss ", line)
    ]
    log = read_lines(tmp_path / "experiment_run" / "training_log.jsonl")
    assert len(epochs) == len(log) > 2
    assert [each["evaluation"] for each in log] == list(range(1, len(log) + 1))
    best = log[-1]["best_evaluation"]
    assert (
        f"stopped early at evaluation {len(log)}; best was {best} by accuracy {log[-1]['best']:.4f}"
        in lines
    )
    assert lines[-1] == f"Report: {tmp_path / 'experiment_run' / 'report.html'}"
    statistics = json.loads((tmp_path / "experiment_run" / "training_statistics.json").read_text())
    accuracy = statistics["validation"]["species"]["accuracy"]
    assert [each["metrics"]["validation"]["species"]["accuracy"] for each in log] == accuracy
    assert "\x1b" not in done.stderr


@pytest.mark.system
def test_workers_of_a_group_tell_their_rounds(tmp_path: Path) -> None:
    section = "{type: local, trainer: {type: data_parallel, num_workers: 2}}"
    done = subprocess.run(
        words(tmp_path, section), capture_output=True, text=True, timeout=300, check=True
    )
    log = read_lines(tmp_path / "experiment_run" / "training_log.jsonl")
    assert len(re.findall(r"(?m)^epoch ", done.stderr)) == len(log) > 2
    assert re.search(r"(?m)^stopped early at evaluation", done.stderr)


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_terminal_shows_rounds_under_the_bar_and_never_a_false_100_percent(
    tmp_path: Path,
) -> None:
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        words(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    bars = re.findall(r"train +\S+ +(\d+)%", text)
    assert bars
    assert max(map(int, bars)) < 100
    last = text[text.rindex("train  ") :].splitlines()
    under = next(line for line in last[1:] if not line.startswith("scores "))
    assert under.startswith(("epoch 1/40", "("))
    assert any(line.startswith("stopped early at evaluation") for line in last)
    assert last[-1].startswith("Report: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(999.4, "999"), (999.7, "1 k"), (13_500, "13.5 k"), (999_700, "1 M"), (0.5, "0.5")],
)
def test_a_rate_is_told_without_powers_of_ten(value, text):
    assert short(value) == text

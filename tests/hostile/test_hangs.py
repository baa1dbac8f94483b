"""Ranks that are stopped or stand still: named, ended if the config says so, waited for
otherwise; the bits stay the same."""

import os
import re
import signal
import time

import pytest
from tests.conftest import Place, some
from tests.hostile.stopping import CONFIG, SECONDS, Run, weights

NAMED = r"(Rank {} \(process {} on (\S+)\)) has made no progress for (\d+) s: (.*)\n"
LAUNCHED = ("horovodrun", "ray")
CLUSTER = [pytest.param(kind, marks=pytest.mark.cluster) for kind in LAUNCHED]
KINDS = ["ddp", "torchrun", *CLUSTER]
FEW = [
    *some(["ddp", "torchrun"], []),  # with `hang_seconds` one of ddp's is named as well
    CLUSTER[0],
    pytest.param("ray", marks=[pytest.mark.cluster, pytest.mark.slow]),
]
TOLD_SECONDS = 3
"""In place of 20, in tests that need not wait so long."""


@pytest.fixture
def begin(place):
    """Starts `train`, and ends whatever is left of it."""
    started = []

    def begun(kind, *given, **named):
        started.append(Run(place, kind, *given, **named))
        return started[-1]

    yield begun
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of two ranks that nobody stops; the same under every launcher."""
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    (place.folder / "tmp").mkdir()
    run = Run(place, "ddp")
    run.brake.release()
    assert run.finish() == 0, run.text
    return weights(place)


def stopped_and_named(run, sweep, least):
    """Stop a rank until it is named with all that must be said of it, and `least` seconds have
    passed; then let it go on to the end."""
    since = time.monotonic()
    rank, process = run.stop_one(sweep.random)
    named = run.line(NAMED.format(rank, process))
    assert named[2] == os.uname().nodename
    assert int(named[3]) >= min(least, 20)
    assert "the process is stopped (by SIGSTOP" in named[4]
    while time.monotonic() < since + least:
        assert run.process.poll() is None, run.text
        time.sleep(0.1)
    os.kill(process, signal.SIGCONT)
    run.line(re.escape(named[1]) + " makes progress again")
    run.brake.release()


@pytest.mark.parametrize("kind", FEW)
def test_a_stopped_rank_is_named_and_goes_on_to_the_same_weights(
    place, sweep, begin, undisturbed, kind
):
    run = begin(kind, told_seconds=TOLD_SECONDS)
    stopped_and_named(run, sweep, TOLD_SECONDS)
    assert run.finish() == 0, run.text
    assert weights(place) == undisturbed
    outcome = (
        "named with rank, process and host; after SIGCONT it went on to an undisturbed run's "
        "weights"
    )
    sweep.tried(f"SIGSTOP to one rank under {kind} until it is named", 1, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_is_stopped_for_two_minutes(place, sweep, begin, undisturbed, kind):
    run = begin(kind)
    stopped_and_named(run, sweep, 120)
    assert run.finish() == 0, run.text
    assert weights(place) == undisturbed
    outcome = (
        "named after 20 s with rank, process and host; after SIGCONT it went on to an undisturbed "
        "run's weights"
    )
    sweep.tried(f"SIGSTOP of 120 s to one rank under {kind}", 1, outcome)


@pytest.mark.parametrize("kind", ["ddp", CLUSTER[1]])
def test_a_stopped_rank_is_ended_after_hang_seconds_and_the_run_goes_on(
    place, sweep, begin, undisturbed, kind
):
    run = begin(kind, ", hang_seconds: 8", retries=1)
    rank, process = run.stop_one(sweep.random)
    run.line(
        rf"[Rr]ank {rank} \(process {process} on \S+\) (was ended: rank .*|)has made no progress "
        r"for \d+ s: "
    )
    run.brake.release()
    assert run.finish() == 0, run.text
    assert weights(place) == undisturbed
    outcome = "ended and named; all were started again and came to an undisturbed run's weights"
    sweep.tried(f"SIGSTOP to one rank under {kind} with trainer.hang_seconds", 1, outcome)


@pytest.mark.parametrize(
    "kind",
    [
        *some(["ddp", "torchrun"], ["ddp"]),
        *(pytest.param(kind, marks=[pytest.mark.cluster, pytest.mark.slow]) for kind in LAUNCHED),
    ],
)
def test_the_last_hang_is_an_error_that_names_the_rank(place, sweep, begin, kind):
    run = begin(kind, ", hang_seconds: 8", retries=0)
    rank, process = run.stop_one(sweep.random)
    assert run.finish() == 1, run.text
    assert re.search(
        rf"[Rr]ank {rank} \(process {process} on \S+\).* has made no progress for \d+ s", run.text
    )
    found = re.search(
        r"The last checkpoint is (\S+); go on from it with --model_resume_path \S+", run.text
    )
    assert found, run.text
    assert found[1] in run.checkpoints()
    if kind in ("ddp", "ray"):  # other launchers' own words come between
        assert "Traceback" not in run.text
    sweep.tried(
        f"SIGSTOP to one rank under {kind} without retries",
        1,
        "exit code 1, the rank and the checkpoint named",
    )


# ------------------------------------------------------------------ one process

STUCK = """
import os, sys
from distcore_torch.training.step import Stepper

pipe, command = sys.argv[1], sys.argv[2:]
step = Stepper.step

def a_disk_that_does_not_answer():
    with open(pipe) as file:
        file.read()

def step_and_wait(self, batch, rows, at, *more):
    if at == 40:
        a_disk_that_does_not_answer()
    return step(self, batch, rows, at, *more)

Stepper.step = step_and_wait
"""
COMMAND = STUCK + "from distcore.cli.main import main\nsys.exit(main(command))\n"
PROGRAM = (
    STUCK
    + "import distcore\ndistcore.train('config.yaml', 'data.csv', output_directory='results')\n"
)
"""A command, and a program of somebody's, that wait at the 40th step until a pipe is written to."""


@pytest.fixture
def stuck(place):
    """A run of one process at its 40th step, after the checkpoint of the 20th: (process, where
    it can be freed)."""
    options = {"steps": 60, "more": ", hang_seconds: 8", "backend": "local"}
    place.write(
        place.config,
        CONFIG.format(**options).replace("steps_per_checkpoint: 300", "steps_per_checkpoint: 20"),
    )
    pipe = place.folder / "pipe"
    os.mkfifo(pipe)
    started = []

    def begin(program, *words):
        started.append(place.python("-c", program, str(pipe), *words, DISTCORE_TOLD_SECONDS="2"))
        return started[-1], pipe

    yield begin
    for each in started:
        if each.poll() is None:
            each.kill()
            each.communicate()


def test_a_command_of_one_process_that_stands_still_says_where_and_ends(place, sweep, stuck):
    process, _ = stuck(COMMAND, *place.words("train"))
    done = place.finish(process, SECONDS)
    assert done.code == 1, done.err
    *_, told, last = [
        line for line in done.err.splitlines() if "in a_disk_that_does_not_answer <" in line
    ]
    who = (
        rf"ank 0 \(process {process.pid} on \S+\) has made no progress for \d+ s: it is computing, "
        r"after 40 steps; "
    )
    assert re.match("R" + who, told), done.err
    assert re.match("distcore: Training stopped: r" + who, last), done.err
    assert done.err.endswith(f"{last}\n")
    (home,) = re.findall(
        r"The last checkpoint is \S+/step-00000040; go on from it with --model_resume_path (\S+)$",
        last,
    )
    place.good("train", "--model_resume_path", home)
    resumed = weights(place)
    place.good("train", "--output_directory", place.folder / "whole")
    (whole,) = (place.folder / "whole").glob("*/model/weights.safetensors")
    assert resumed == whole.read_bytes()
    outcome = (
        "told where it stands; exit code 1 and the last checkpoint, from which a run goes on to "
        "the same weights"
    )
    sweep.tried("a command of one process that stands still, with trainer.hang_seconds", 1, outcome)


def test_a_program_that_stands_still_is_told_of_and_not_ended(place, sweep, stuck):
    process, pipe = stuck(PROGRAM)
    said = []
    for line in process.stderr:
        said.append(line)
        if "Only the program that called distcore can end this run" in line:
            break
    assert f"Rank 0 (process {process.pid} on " in "".join(said)
    pipe.write_text("on you go")
    done = place.finish(process, SECONDS)
    assert done.code == 0, done.err
    assert weights(place)
    sweep.tried(
        "a program that called distcore and stands still",
        1,
        "told where; it goes on, and ends well",
    )

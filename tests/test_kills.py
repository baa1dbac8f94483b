"""Runs that are stopped from outside, through the command line: ctrl-C at each stage, SIGKILL,
full and read-only disks."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.conftest import wait_for_the_end_of

from distcore_data.locks import folder_if_free

pytestmark = pytest.mark.system

ROWS = 150_000
LARGE = """\
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 3, batch_size: 64, steps_per_checkpoint: 700, early_stop: -1}
backend: local
"""
LONG = LARGE.replace(
    "epochs: 3, batch_size: 64, steps_per_checkpoint: 700", "epochs: 40, batch_size: 16"
)

EARLY = 30
"""Steps after which a run of LONG has saved a checkpoint, in one process or two, and is far from its
end."""


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(folder):
    """Digests of everything that training left: best and last weights, statistics."""
    names = ("model/weights.safetensors", "model/last.safetensors", "training_statistics.json")
    return {name: sha256(folder / name) for name in names if (folder / name).exists()}


def leftovers(place):
    """Whatever was being built when the run stopped."""
    return [
        name
        for name in place.listing()
        if re.search(r"\.(building|removing)-|\.tmp$|\.lock$|^tmp/distcore", name)
    ]


@pytest.fixture(scope="module")
def large(tmp_path_factory, row):
    """A dataset whose stages last, and its rows are noise enough."""
    path = tmp_path_factory.mktemp("large") / "data.csv"
    lines = (f"{age},{city},{bought}\n" for age, city, bought in map(row, range(ROWS)))
    path.write_text("age,city,bought\n" + "".join(lines))
    return path


# ------------------------------------------------------------------ ctrl-C


@pytest.mark.parametrize("stage", ["digest", "read", "encode"])
def test_ctrl_c_before_training_leaves_nothing(place, large, stage):
    place.write(place.config, LARGE)
    shutil.copy(large, place.folder / place.data)
    before = place.listing()
    done = place.interrupted(stage, "experiment")
    assert done.code == 130, done.err
    assert "distcore: stopped by ctrl-C." in done.err
    assert "Traceback" not in done.err
    assert {name for name in place.listing() if name != ".distcore_cache"} == set(before)


def test_ctrl_c_while_training_saves_a_checkpoint_and_says_how_to_go_on(place, brake):
    """And the resumed run ends as one that nobody stopped."""
    place.write(place.config, LONG)
    place.good("train", "--model_name", "whole")
    brake.apply(after=EARLY)
    process = place.start("train", **brake.environment)
    checkpoint(process, place.results)
    process.send_signal(signal.SIGINT)
    done = place.finish(process)
    assert done.code == 130, done.err
    found = re.search(
        r"Stopped after step (\d+)\. Go on from there with --model_resume_path (\S+)", done.err
    )
    assert found, done.err
    assert "Traceback" not in done.err
    assert not leftovers(place)
    place.good("train", "--model_resume_path", found[2])
    assert weights(place.results) == weights(place.folder / "results" / "experiment_whole")


def test_ctrl_c_while_evaluating_keeps_the_model_and_says_so(place, large):
    place.write(
        place.config, LARGE.replace("epochs: 3", "train_steps: 20, epochs: 1").replace("700", "0")
    )
    shutil.copy(large, place.folder / place.data)
    done = place.interrupted("test", "experiment")
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert not leftovers(place)
    assert not (place.results / "predictions.parquet").exists()
    assert re.search(rf"distcore: stopped by ctrl-C\. .*{re.escape(str(place.results))}", done.err)
    place.good("evaluate", "--model_path", place.results)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_ctrl_c_while_predicting_leaves_nothing(place, trained, large, command):
    shutil.copy(large, place.folder / place.data)
    before = place.listing()
    done = place.interrupted(command, command, "--model_path", trained)
    assert done.code == 130, done.err
    assert "distcore: stopped by ctrl-C." in done.err
    assert "Traceback" not in done.err
    assert place.listing() == before


def test_ctrl_c_in_a_terminal_stops_every_worker_of_ddp(place, brake):
    """A terminal sends the signal to all processes of the group."""
    place.write(
        place.config,
        LONG.replace(
            "backend: local", "backend: {type: local, trainer: {type: ddp, num_workers: 2}}"
        ),
    )
    brake.apply(after=EARLY)
    process = place.start("train", **brake.environment)
    checkpoint(process, place.results)
    os.killpg(process.pid, signal.SIGINT)
    done = place.finish(process)
    assert done.code == 130, done.err
    assert re.search(
        r"Stopped after step \d+\. Go on from there with --model_resume_path", done.err
    ), done.err
    assert "Traceback" not in done.err
    assert not leftovers(place)
    wait_for_the_end_of("group", process.pid)


# ------------------------------------------------------------------ SIGKILL


def checkpoints(folder):
    return [each for each in (folder / "checkpoints").glob("step-*") if each.suffix == ""]


def checkpoint(process, folder, before=frozenset(), seconds=300):
    """Wait until the run has saved a checkpoint that is not one of `before`."""
    deadline = time.monotonic() + seconds
    while set(checkpoints(folder)) <= before:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_and_resumed_ends_with_the_same_weights(place, brake):
    """Killed twice, at whatever step it stood."""
    place.write(place.config, LONG)
    place.good("train", "--model_name", "whole")
    brake.apply(after=EARLY)
    process = place.start("train", **brake.environment)
    checkpoint(process, place.results)
    process.kill()
    place.finish(process)
    before = frozenset(checkpoints(place.results))
    process = place.start("train", "--model_resume_path", place.results, **brake.environment)
    checkpoint(process, place.results, before)
    process.kill()
    place.finish(process)
    place.good("train", "--model_resume_path", place.results)
    assert weights(place.results) == weights(place.folder / "results" / "experiment_whole")
    assert not leftovers(place)


KILLED_WHILE_CACHING = """
import os, signal, sys
from distcore.cli.main import main

def heard(event, given):
    if event == "open" and ".building-" in str(given[0]) and "/train/" in str(given[0]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(heard)
sys.exit(main(sys.argv[1:]))
"""
"""The command line with a SIGKILL when a shard is about to be written."""


def test_killed_while_caching_leaves_no_cache_that_is_read(place):
    killed = place.finish(place.python("-c", KILLED_WHILE_CACHING, *place.words("preprocess")))
    assert killed.code == -signal.SIGKILL, killed.err
    assert list((place.folder / ".distcore_cache").glob("*.building-*/rows/*"))
    done = place.good("preprocess")
    assert os.listdir(place.folder / ".distcore_cache") == [os.path.basename(done.out.strip())]


# ------------------------------------------------------------------ disks

DISK = """
set -e
mount -t tmpfs -o size={size} none {disk}
[ "{mode}" = rw ] || mount -o remount,ro {disk}
set +e
{command}
echo "status: $?"
echo "lies: $(cd {disk} && find . -mindepth 1 | sort | tr '\\n' ' ')"
mount -o remount,rw,size=64m {disk}
{then}
echo "then: $?"
"""


def on_a_disk(place, words, size="64m", mode="rw", then="true"):
    """(status, what lies on the disk, status of `then` once there is room, stderr) of a run that
    writes to a small disk."""
    allowed = next((each for each in (["unshare", "-m"], ["unshare", "-rm"]) if mounts(each)), None)
    if allowed is None:
        pytest.skip("no mount namespace is allowed here")
    disk = place.folder / "disk"
    disk.mkdir()
    run = f"{sys.executable} -m distcore.cli.main "
    script = DISK.format(
        size=size,
        disk=disk,
        mode=mode,
        command=run + " ".join(words),
        then=then.replace("distcore ", run),
    )
    done = subprocess.run(
        [*allowed, "sh", "-c", script], capture_output=True, text=True, timeout=600
    )
    found = dict(re.findall(r"^(status|lies|then): ?(.*)$", done.stdout, re.MULTILINE))
    return int(found["status"]), found["lies"].split(), int(found["then"]), done.stderr


def mounts(command):
    mount = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") and subprocess.run(mount, capture_output=True).returncode == 0


def cache_on_the_disk(place):
    place.write(
        place.config,
        LARGE.replace(
            "backend: local", f"backend: {{type: local, cache_dir: {place.folder}/disk/cache}}"
        ),
    )


def test_a_disk_that_is_full_while_caching(place, large):
    cache_on_the_disk(place)
    shutil.copy(large, place.folder / place.data)
    words = place.words("experiment")
    status, lies, then, said = on_a_disk(
        place, words, size="200k", then="distcore " + " ".join(place.words("preprocess"))
    )
    assert (status, lies, then) == (1, [], 0), said
    assert re.search(
        r"There is no room for the cache in \S+disk/cache .* Make room, or .*backend\.cache_dir",
        said,
    )
    assert "Traceback" not in said
    assert not place.results.exists()


def test_a_cache_dir_that_is_read_only(place):
    cache_on_the_disk(place)
    status, lies, _, said = on_a_disk(place, place.words("experiment"), mode="ro")
    assert (status, lies) == (2, []), said
    assert re.search(r"disk/cache cannot be written, .*read-only.* backend\.cache_dir", said)
    assert not place.results.exists()


WIDE = LONG.replace("epochs: 40", "epochs: 4").replace(
    "backend", "combiner: {type: concat, num_fc_layers: 2, output_size: 256}\nbackend"
)
"""A checkpoint of it takes about 0.8 MB."""


def test_a_disk_that_is_full_at_the_first_checkpoint_is_as_it_was(place):
    place.write(place.config, WIDE)
    words = place.words("train", "--output_directory", f"{place.folder}/disk/results")
    status, lies, _, said = on_a_disk(place, words, size="300k")
    assert (status, lies) == (1, []), said
    assert re.search(
        r"There is no room for the checkpoint in \S+ .* Make room, or .*--output_directory", said
    )
    assert "Traceback" not in said


def test_a_disk_that_is_full_at_a_later_checkpoint_keeps_the_earlier_ones(place):
    """With room again, the run goes on from them."""
    place.write(place.config, WIDE)
    out = f"{place.folder}/disk/results"
    words = place.words("train", "--output_directory", out)
    again = (
        f"distcore {' '.join(words)} --model_resume_path {out}/experiment_run && cp -r {out} "
        f"{place.folder}"
    )
    status, lies, then, said = on_a_disk(place, words, size="1900k", then=again)
    assert status == 1, said
    assert "There is no room for the checkpoint" in said
    kept = [
        each
        for each in lies
        if re.fullmatch(r"\./results/experiment_run/checkpoints/step-\d+", each)
    ]
    assert kept, lies
    assert not [each for each in lies if "building" in each]
    assert then == 0, said
    assert "Going on after step" in said
    place.good("train", "--model_name", "whole")
    assert weights(place.results) == weights(place.folder / "results" / "experiment_whole")


def test_a_disk_that_is_full_while_predicting(place, trained, large):
    words = place.words(
        "predict",
        "--model_path",
        trained,
        "--dataset",
        large,
        "--output_directory",
        f"{place.folder}/disk/out",
    )
    status, lies, _, said = on_a_disk(place, words, size="16k")
    assert (status, lies) == (1, []), said
    assert re.search(
        r"There is no room for the predictions in \S+disk/out .*--output_directory", said
    )


def test_a_disk_that_is_full_is_no_mistake_in_the_command(place):
    """Exit code 2 says that another try meets it again."""
    words = ["schema", "--output", f"{place.folder}/disk/schema.json"]
    status, lies, then, said = on_a_disk(place, words, "16k", then="distcore " + " ".join(words))
    assert (status, lies, then) == (1, [], 0), said
    assert "schema.json cannot be written: No space left on device. Give another file" in said


# ------------------------------------------------------------------ whose folder it is


def test_a_run_that_was_killed_before_it_saved_anything_makes_room(place):
    begun = place.folder / "results" / "experiment_run"
    (begun / "checkpoints").mkdir(parents=True)
    (begun / "description.json").write_text("{}")
    place.good("train")
    assert sorted(each.name for each in begun.parent.iterdir()) == ["experiment_run"]
    assert (begun / "model" / "model.json").is_file()


@pytest.mark.parametrize(
    "kept", ["notes.txt", "ended.json", "checkpoints/step-00000001/manifest.json", "model/x"]
)
def test_a_folder_in_which_something_lies_is_left_alone(place, kept):
    begun = place.folder / "results" / "experiment_run"
    place.write(f"results/experiment_run/{kept}", "mine")
    place.good("train")
    assert (begun / kept).read_text() == "mine"
    assert not (begun / "description.json").exists()
    assert (begun.with_name("experiment_run_1") / "model" / "model.json").is_file()


def test_the_folder_of_a_run_that_has_just_begun_is_its_own(place):
    begun = place.folder / "results" / "experiment_run"
    begun.mkdir(parents=True)
    with folder_if_free(begun) as free:
        assert free
        place.good("train")
    assert not list(begun.iterdir())
    assert (begun.with_name("experiment_run_1") / "model" / "model.json").is_file()

"""Where files lie: names of any bytes, and disks that take only so many files."""

import os
import shutil
import subprocess
import sys

import pytest

NOT_IN_A_NAME = {0, ord("/")}


def random_name(random):
    """A file's name of any bytes, most of them no UTF-8."""
    count = random.randrange(1, 60)
    found = bytes(random.choice([*range(1, 47), *range(48, 256)]) for _ in range(count))
    return os.fsdecode(found.lstrip(b".~-") or b"\xff")


def test_names_of_any_bytes(sweep, place, trained):
    """Of the dataset, the config and the folder of results."""
    place.good("train")
    whole = (place.results / "model" / "weights.safetensors").read_bytes()
    count = sweep.times(1, 30)
    for _ in range(count):
        data, config, results = (place.folder / random_name(sweep.random) for _ in range(3))
        data = data.parent / f"{data.name}.csv"
        data.write_bytes((place.folder / place.data).read_bytes())
        config.write_bytes((place.folder / place.config).read_bytes())
        words = place.words(
            "train", "--config", config, "--dataset", data, "--output_directory", results
        )
        done = subprocess.run(
            [sys.executable, "-m", "distcore", *words], capture_output=True, timeout=600
        )
        assert done.returncode == 0, (data, config, results, done.stderr)
        assert os.fsencode(results) in done.stdout
        assert b"lacks" not in done.stderr, done.stderr
        assert (results / "experiment_run" / "model" / "weights.safetensors").read_bytes() == whole
        for each in (data, config):
            each.unlink()
        shutil.rmtree(results)
    sweep.tried(
        "a dataset, config and folder of results with names of random bytes, given to `train`",
        count,
        "each trained to the weights that it has under plain names",
    )


ON_A_DISK = """
set -e
mount -t tmpfs -o nr_inodes={inodes} none "$1"
cp "$2"/data.csv "$2"/config.yaml "$1"
cd "$1"
set +e
$3 -m distcore train --config config.yaml --dataset data.csv
echo "code: $?"
mount -o remount,nr_inodes=100000 "$1"
again=
for each in results/experiment_run/checkpoints/step-????????; do
  [ -d "$each" ] && again="--model_resume_path results/experiment_run"
done
$3 -m distcore train --config config.yaml --dataset data.csv $again
echo "code: $?"
find . -name '*.building-*' -o -name '*.tmp' | sed 's/^/left: /'
sha256sum results/experiment_run/model/weights.safetensors
"""


def namespace():
    """The command for a mount namespace of one's own, or None if the system allows none."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        mount = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if shutil.which("unshare") and subprocess.run(mount, capture_output=True).returncode == 0:
            return command
    return None


def test_a_disk_that_takes_only_so_many_files(sweep, place):
    command = namespace()
    if command is None:
        pytest.skip("no mount namespace is allowed here")
    disk, came, sums = place.folder / "disk", [], set()
    disk.mkdir()
    for inodes in [100_000, *(sweep.random.randrange(4, 60) for _ in range(sweep.times(1, 16)))]:
        script = ON_A_DISK.format(inodes=inodes)
        words = ["sh", "-c", script, "sh", str(disk), str(place.folder), sys.executable]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=600)
        first, second = [line for line in done.stdout.splitlines() if line.startswith("code: ")]
        told = f"{inodes} inodes: {done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, told
        assert "not expected" not in done.stderr, told
        assert second == "code: 0" or "already" in done.stderr, told
        assert "left: " not in done.stdout, told
        if first != "code: 0":
            assert "inodes are" in done.stderr, told
        sums.add(done.stdout.split()[-2])
        came.append(first == "code: 0")
    assert came[0]
    assert len(sums) == 1, sums
    came = came[1:]
    sweep.tried(
        "`train` on a disk that takes 4 to 60 files, and once more when it takes any number",
        len(came),
        f"{sum(came)} had enough, {len(came) - sum(came)} said that all inodes are used; then each "
        "came to the same weights; nothing half-written was left",
    )

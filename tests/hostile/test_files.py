"""Files that mean harm, given to whole commands: nothing in them is run, nothing is unpacked,
memory stays bounded."""

import hashlib
import json
import os
import pickle
import resource
import shutil
import tarfile
import zipfile

import pytest

from distcore_data.seals import sealed

MEMORY = 256 << 20


class Runs:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (os.makedirs, (self.mark, 0o777, True))


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


@pytest.fixture
def evil(mark):
    """A pickle that would leave the mark, tried once."""
    content = pickle.dumps(Runs(mark))
    pickle.loads(content)  # noqa: S301
    mark.rmdir()
    return content


def said_by(place, *words):
    """What a command said that failed in words, after it had made its cache."""
    done = place.run(*words)
    assert done.code in (1, 2), done.err
    assert "Traceback" not in done.err
    assert "not expected" not in done.err
    return done.err


# ------------------------------------------------------------------ pickles under any name


@pytest.mark.parametrize(
    "suffix", ["csv", "tsv", "parquet", "jsonl", "feather", "csv.gz", "pkl", "pickle", "npy"]
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_as_a_dataset(place, mark, suffix, protocol):
    path = place.write(f"evil.{suffix}", pickle.dumps(Runs(mark), protocol))
    place.refused("preprocess", "--dataset", path)
    assert not mark.exists()


def resigned(folder, manifest, name, content):
    """The file replaced, and its size and digest in the manifest made right, as someone would
    who knows how."""
    (folder / name).write_bytes(content)
    saved = json.loads((folder / manifest).read_text())
    saved.pop("digest", None)
    saved["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / manifest).write_bytes(sealed(saved))


@pytest.mark.parametrize("name", ["weights.safetensors", "model.json"])
def test_a_pickle_in_a_model(place, trained, mark, evil, name):
    model = shutil.copytree(trained / "model", place.folder / "model")
    if name == "model.json":
        (model / name).write_bytes(evil)
    else:
        resigned(model, "model.json", name, evil)
    assert str(model / name) in said_by(place, "predict", "--model_path", model)
    assert not mark.exists()


def test_a_pickle_as_weights_to_start_from(place, mark, evil):
    path = place.write("evil.safetensors", evil)
    assert "evil.safetensors cannot be read" in said_by(place, "train", "--model_load_path", path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_pickle_in_every_checkpoint(place, trained, mark, evil, name):
    run = shutil.copytree(trained, place.folder / "results" / "experiment_run")
    checkpoints = [each for each in (run / "checkpoints").iterdir() if each.is_dir()]
    assert checkpoints
    for each in checkpoints:
        if name == "manifest.json":
            (each / name).write_bytes(evil)
        else:
            resigned(each, "manifest.json", name, evil)
    assert f"/{name} is damaged" in said_by(place, "train", "--model_resume_path", run)
    assert not mark.exists()


def test_a_pickle_as_the_manifest_of_a_cache_is_built_again(place, mark, evil):
    place.good("preprocess")
    (manifest,) = (place.folder / ".distcore_cache").glob("*/manifest.json")
    manifest.write_bytes(evil)
    done = place.good("preprocess")
    assert "manifest.json is damaged" in done.err
    assert manifest.read_bytes() != evil
    assert not mark.exists()


# ------------------------------------------------------------------ headers


def within(memory, work):
    """Run work in a process of its own, and see that it takes no more memory than that; what it
    returned, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            said = work()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            os.write(write, f"{grown << 10} {said}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        grown, _, said = file.read().partition(" ")
    os.waitpid(child, 0)
    assert int(grown) < memory
    return said


@pytest.mark.parametrize("real", [False, True], ids=["claimed", "there"])
def test_a_safetensors_header_of_ten_gigabytes(place, real):
    """Claimed by a small file, or really there (as a hole in the file)."""
    path = place.write("evil.safetensors", (10 << 30).to_bytes(8, "little") + b'{"a":{}}')
    if real:
        os.truncate(path, (10 << 30) + 16)

    def load():
        from distcore_torch.training.tensorfile import read_tensors

        try:
            read_tensors(path)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "loaded"

    said = within(MEMORY, load)
    assert said.startswith("SafetensorError") or "header" in said.lower(), said
    assert "evil.safetensors cannot be read" in said_by(place, "train", "--model_load_path", path)


# ------------------------------------------------------------------ archives


def zipped(path, name, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def tarred(path, name, content):
    (path.parent / "inner").write_text(content)
    with tarfile.open(path, "w") as archive:
        archive.add(path.parent / "inner", name)
    (path.parent / "inner").unlink()


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../../slipped.csv", "/tmp/distcore-slipped.csv", "data.csv"])
@pytest.mark.parametrize("suffix", ["", ".csv", ".parquet"])
def test_archives_are_not_unpacked(place, kind, name, suffix):
    """No command unpacks archives, so nothing can slip out of one; a dataset that is one is
    refused by name."""
    path = place.folder / f"evil{suffix or '.' + kind}"
    {"zip": zipped, "tar": tarred}[kind](path, name, "age,city,bought\n1,Rome,yes\n" * 50)
    message = place.refused("preprocess", "--dataset", path)
    assert path.name in message
    assert not os.path.exists("/tmp/distcore-slipped.csv")
    assert not (place.folder.parent / "slipped.csv").exists()

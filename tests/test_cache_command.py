"""The command `cache`: where it looks, what it prints, and its exit codes."""

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "toolkits" / "data" / "tests" / "cache"))
from faulty_builds import Build

from distcore.cli.cache import size_of
from distcore.cli.main import main
from distcore_core.errors import UserError
from distcore_data.cache import Cache, ensure_cache
from distcore_data.cache.use import begin_use

build = Build("parquet", 2000)
FEATURES = "input_features: [{name: a, type: number}]\noutput_features: [{name: b, type: binary}]\n"
KEYS = ["a1" * 20, "b2" * 20]


@pytest.fixture
def place(tmp_path):
    """Beside data.csv, as by default."""
    for key in KEYS:
        ensure_cache(tmp_path / ".distcore_cache", key, build.format, build)
    (tmp_path / "config.yaml").write_text(
        FEATURES + f"backend: {{type: local, cache_dir: {tmp_path}/.distcore_cache}}"
    )
    (tmp_path / "data.csv").touch()
    return tmp_path


@pytest.fixture
def said(capsys):
    """Run the command; (exit code, stdout, stderr)."""

    def run(*words):
        code = main(["cache", *map(str, words)])
        return (code, *capsys.readouterr())

    return run


def flags(place, how):
    return {
        "--cache_dir": ["--cache_dir", place / ".distcore_cache"],
        "--cache-dir": ["--cache-dir", f"file://{place}/.distcore_cache"],
        "--config": ["--config", place / "config.yaml"],
        "--dataset": ["--dataset", place / "data.csv"],
        "a folder": [place / ".distcore_cache"],
        "a file": [place / "data.csv"],
    }[how]


@pytest.mark.parametrize(
    "how", ["--cache_dir", "--cache-dir", "--config", "--dataset", "a folder", "a file"]
)
def test_where_it_looks(place, said, how):
    code, out, err = said("list", *flags(place, how))
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:3]] == [key[:12] for key in KEYS]
    assert out.splitlines()[-1].endswith(f"in {place}/.distcore_cache")


def test_list_as_json(place, said):
    use = begin_use(Cache(directory=f"{place}/.distcore_cache", key=KEYS[1]))
    _, out, _ = said("list", *flags(place, "--dataset"), "--json")
    use.close()
    found = {entry["key"]: entry for entry in json.loads(out)}
    assert found[KEYS[0]]["state"] == "whole"
    assert (found[KEYS[0]]["in_use"], found[KEYS[1]]["in_use"]) == (False, True)
    assert found[KEYS[1]]["users"] == [str(os.getpid())]
    assert found[KEYS[0]]["source"] == {"digest": "d", "rows": 2000}


def test_what_another_version_built_is_not_damaged(place, said, monkeypatch):
    monkeypatch.setattr("distcore_data.cache.manifest.CACHE_VERSION", 99)
    code, out, _ = said("verify", *flags(place, "--dataset"))
    assert code == 0
    assert f"{KEYS[0]} was not read: {place}/.distcore_cache/{KEYS[0]}/manifest.json was" in out
    assert "written by an older distcore (cache version 3; this one reads 99)" in out
    _, out, _ = said("verify", *flags(place, "--dataset"), "--json")
    assert "older distcore" in json.loads(out)[0]["other_version"]


def test_verify_names_what_is_damaged(place, said):
    code, out, _ = said("verify", *flags(place, "--dataset"))
    assert code == 0
    assert out.count("is whole") == 2
    folder = place / ".distcore_cache" / KEYS[0]
    for part in ("train", "test"):
        path = folder / part / "00000.parquet"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    (folder / "rows" / "00000.parquet").unlink()
    code, out, _ = said("verify", *flags(place, "--dataset"))
    assert code == 1
    for part, why in (("train", "sha256"), ("test", "sha256"), ("rows", "is missing")):
        assert f"{folder}/{part}/00000.parquet of the cache" in out
        assert why in out
    assert out.count("is whole") == 1
    assert said("verify", *flags(place, "--dataset"), "b2")[0] == 0
    code, out, _ = said("verify", *flags(place, "--dataset"), "--json")
    reports = {report["key"]: report for report in json.loads(out)}
    assert [len(reports[key]["damaged"]) for key in KEYS] == [3, 0]


def test_verify_a_torn_manifest(place, said):
    (place / ".distcore_cache" / KEYS[0] / "manifest.json").write_bytes(b'{\n "digest": "torn')
    code, out, _ = said("verify", *flags(place, "--dataset"))
    assert code == 1
    assert "manifest.json is damaged" in out


def test_prune_tells_what_it_does(place, said):
    shard_of = place / ".distcore_cache"
    code, out, _ = said("prune", *flags(place, "--dataset"))
    assert code == 0
    assert out.count("no rule says that it goes") == 2
    assert "0 bytes freed" in out
    code, out, _ = said("prune", *flags(place, "--dataset"), "--unused", "--dry_run")
    assert out.count("would be removed") == out.count("no run uses it") == 2
    assert sorted(os.listdir(shard_of)) == KEYS
    use = begin_use(Cache(directory=str(shard_of), key=KEYS[0]))
    code, out, _ = said("prune", *flags(place, "--dataset"), "--keep", "1kB", "--json")
    use.close()
    assert code == 0
    assert {each["key"]: each["what"] for each in json.loads(out)} == {
        KEYS[0]: "kept",
        KEYS[1]: "removed",
    }
    assert {each["key"]: (each["reason"], each["kept"] != "") for each in json.loads(out)} == {
        KEYS[0]: (f"used by {os.getpid()}", True),
        KEYS[1]: ("too much is kept, and it was used longest ago", False),
    }
    code, out, _ = said("prune", *flags(place, "--dataset"), "--older_than", "0")
    assert "last used 0.0 days ago" in out
    assert os.listdir(shard_of) == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["list"], "Say where the caches lie"),
        (
            ["list", "--cache_dir", "http://169.254.169.254/latest"],
            "is no store. Nothing was contacted",
        ),
        (["prune", "--cache_dir", "{}", "--keep", "much"], "'much' is no size"),
        (["prune", "--cache_dir", "{}", "--older_than", "-1"], "no number of days"),
        (["prune", "--cache_dir", "{}", "--older_than", "nan"], "no number of days"),
        (["verify", "--cache_dir", "{}", "ffff"], "begins with 'ffff'"),
        (["list", "--cache_dir", "{}/nowhere"], "nowhere (--cache_dir): there is no such folder"),
        (["verify", "--cache_dir", "{}/nowhere"], "there is no such folder"),
        (["prune", "--unused", "nowhere"], "nowhere (--cache_dir): there is no such folder"),
        (["list", "http://169.254.169.254/latest"], "is no store. Nothing was contacted"),
        (["prune", "--cache_dir", "{}/nowhere"], "there is no such folder"),
        (["list", "--dataset", "{}/nowhere/typo.csv"], "typo.csv: no such file"),
        (["list", "--config", "{}/plain.yaml"], "plain.yaml names no backend.cache_dir"),
    ],
)
def test_mistakes_are_told(place, said, words, error):
    (place / "plain.yaml").write_text(FEATURES + "backend: local")
    code, out, err = said(*(word.format(place) for word in words))
    assert (code, out) == (2, "")
    assert error in err
    assert "Traceback" not in err


def test_caches_beside_a_dataset_that_is_gone_are_found(place, said):
    (place / "data.csv").unlink()
    for named in (["--dataset", place / "data.csv"], [place / "data.csv"]):
        assert len(json.loads(said("list", "--json", *named)[1])) == len(KEYS)
    assert said("prune", "--unused", "--dataset", place / "data.csv")[0] == 0
    assert json.loads(said("list", "--json", "--cache_dir", place / ".distcore_cache")[1]) == []


def test_where_no_run_was_yet_there_are_no_caches(place, said):
    (place / "empty").mkdir()
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "data.csv").touch()
    for how in (
        ["--cache_dir", place / "empty"],
        ["--dataset", place / "elsewhere" / "data.csv"],
    ):
        code, out, err = said("verify", *how)
        assert (code, err) == (0, "")
        assert out.startswith("There are no caches in ")
    for how in (["--dataset"], []):
        assert said("list", *how, place / "elsewhere" / "*.csv")[0] == 0


@pytest.mark.parametrize("words", [[], ["drop"], ["list", "--unused"]])
def test_what_argparse_refuses(said, words):
    with pytest.raises(SystemExit) as ended:
        said(*words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1500", 1500),
        ("20GB", 20 * 10**9),
        ("1.5 tb", 15 * 10**11),
        ("500MB", 5 * 10**8),
        ("2k", 2000),
        ("7B", 7),
    ],
)
def test_sizes(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1GiB", "1 2", "1e3"])
def test_what_is_no_size(text):
    with pytest.raises(UserError, match="is no size"):
        size_of(text)


def test_a_damaged_cache_says_why(place, said):
    path = place / ".distcore_cache" / KEYS[0] / "train" / "00000.parquet"
    path.write_bytes(b"cut")
    _, out, _ = said("list", *flags(place, "--dataset"))
    assert "damaged" in out.splitlines()[1] + out.splitlines()[2]
    assert f"{KEYS[0]}: {path} of the cache is damaged" in out

"""Metadata too large for the manifest lie beside it, and are read, verified, listed, pruned and
built again as all else."""

import json
import os

import pytest

import distcore
from distcore_core.errors import CacheError
from distcore_data import model_folder
from distcore_data.artifact import open_artifact
from distcore_data.cache import manifest as manifests
from distcore_data.cache import open_cache, verify
from distcore_data.cache.listing import list_caches
from distcore_data.cache.prune import Rules, prune
from distcore_data.seals import unsealed
from distcore_data.stores import open_store

ROWS = 300


def config(root):
    return {
        "input_features": [
            {"name": "word", "type": "category", "preprocessing": {"most_common": 10**6}}
        ],
        "output_features": [{"name": "bought", "type": "binary"}],
        "backend": {"type": "local", "cache_dir": str(root)},
    }


def frame(rows=ROWS, letters=20):
    texts = [f"{number:0{letters}d}" for number in range(rows)]
    return {"word": texts, "bought": ["yes" if number % 3 else "no" for number in range(rows)]}


@pytest.fixture(params=["folder", "bucket"])
def root(request, tmp_path):
    return (
        f"memory://{os.urandom(8).hex()}/caches"
        if request.param == "bucket"
        else tmp_path / "caches"
    )


@pytest.fixture
def small(monkeypatch):
    """Already a few texts are large."""
    monkeypatch.setattr("distcore_data.cache.builder.INLINE_BYTES", 1000)


def objects(root):
    return [name for name in open_store(root).list() if "/reading-" not in name]


def preprocess(root, data=None):
    return distcore.preprocess(config(root), data or frame(), view="none")


def test_they_lie_beside_the_manifest_with_a_digest_in_it(root, small):
    cache = preprocess(root)
    reader = open_cache(cache)
    assert reader.metadata["word"]["idx2str"][-1] == frame()["word"][-1]
    assert reader.manifest["metadata"] == {}
    (entry,) = reader.manifest["large"]
    (name,) = [name for name in objects(root) if name.endswith(entry["file"])]
    store = open_store(root)
    assert unsealed(store.read(name))["metadata"] == reader.metadata
    assert verify(cache) > entry["bytes"]
    (found,) = list_caches(root)
    assert (found.state, set(found.features)) == ("whole", {"word", "bought"})
    assert preprocess(root) == cache


def test_small_ones_stay_in_the_manifest(root):
    reader = open_cache(preprocess(root))
    assert reader.manifest["large"] == []
    assert set(reader.manifest["metadata"]) == {"word", "bought"}


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damaged_ones_are_told_and_the_cache_is_built_again(root, small, damage, caplog):
    cache = preprocess(root)
    store = open_store(root)
    (name,) = [name for name in objects(root) if "/metadata/" in name]
    content = bytearray(store.read(name))
    if damage == "gone":
        store.delete([name])
    else:
        content[len(content) // 2] ^= 1
        store.write(name, bytes(content if damage == "flipped" else content[:-1]))
    with pytest.raises(CacheError, match=r"metadata/00000\.json"):
        open_cache(cache)
    with pytest.raises(CacheError, match=r"metadata/00000\.json"):
        verify(cache)
    assert preprocess(root) == cache
    assert "It is built again now." in caplog.text
    verify(cache)
    assert open_cache(cache).metadata["word"]["idx2str"][-1] == frame()["word"][-1]


def test_a_shard_is_repaired_by_them(root, small):
    cache = preprocess(root)
    store = open_store(root)
    (name,) = [name for name in objects(root) if "/train/" in name]
    before = store.read(name)
    store.write(name, before[:-1])
    assert preprocess(root) == cache
    assert store.read(name) == before
    verify(cache)


def test_they_are_pruned_with_their_cache(root, small):
    preprocess(root)
    (decision,) = prune(root, Rules(unused=True))
    assert decision.what == "removed"
    assert [name for name in objects(root) if "/metadata/" in name] == []


def test_more_than_is_read_back_is_refused_when_it_is_written(root, small, monkeypatch):
    monkeypatch.setattr(manifests, "MOST_METADATA", 2000)
    with pytest.raises(CacheError, match=r"2000 are read back\. Lower most_common"):
        preprocess(root)
    assert [name for name in objects(root) if name.endswith("manifest.json")] == []


@pytest.mark.slow
def test_a_vocabulary_of_72_megabytes(tmp_path):
    cache = preprocess(tmp_path, frame(7200, 10_000))
    assert (cache.folder / "manifest.json").stat().st_size < 1 << 20
    assert len(open_cache(cache).metadata["word"]["idx2str"]) > 7200
    assert preprocess(tmp_path, frame(7200, 10_000)) == cache
    verify(cache)
    assert (
        json.loads((cache.folder / "manifest.json").read_bytes())["large"][0]["bytes"] > 72 * 10**6
    )


def test_a_cache_that_was_just_written_is_not_read_back(root, small, monkeypatch):
    """A million texts would be parsed, and lie in memory twice."""

    def parse(content):
        raise AssertionError("the metadata were read")

    monkeypatch.setattr("distcore_data.cache.opening.parse_metadata", parse)
    cache = preprocess(root)
    monkeypatch.undo()
    assert open_cache(cache).rows("train") > 0


def test_a_model_is_read_and_checked_once_when_it_is_opened(trained, monkeypatch):
    """Its trainer, which is given the folder alone, parsed 26 MB and hashed the weights again."""
    calls = []
    for name in ("unsealed", "_check"):
        real = getattr(model_folder, name)
        monkeypatch.setattr(
            model_folder,
            name,
            lambda *a, real=real, name=name, **k: calls.append(name) or real(*a, **k),
        )
    opened = open_artifact(trained)
    assert calls == ["unsealed", *["_check"] * len(opened.manifest["files"])]
    calls.clear()
    model_folder.read_manifest(trained / "model")  # nothing is kept of it
    assert calls[0] == "unsealed"
    assert len(calls) == 1 + len(opened.manifest["files"])

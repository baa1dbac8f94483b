"""Sizes around what is read back or unpacked: within the limit all of it is there, beyond it nothing
is written and the error says so."""

import bz2
import gzip
import lzma

import pytest
import zstandard

import distcore
from distcore_core.errors import CacheError, DataError
from distcore_data.cache import manifest as manifests
from distcore_data.cache import open_cache, verify
from distcore_data.sources.registry import open_source

MOST, INLINE = 20_000, 2_000
"""Bytes of metadata that are read back, and that stand in the manifest, in place of 1 GiB and
4 MiB."""


@pytest.mark.parametrize("kind", ["category", "set", "text"])
def test_a_vocabulary(sweep, tmp_path, monkeypatch, kind):
    """What a feature has found is committed if and only if it can be read back."""
    monkeypatch.setattr(manifests, "MOST_METADATA", MOST)
    monkeypatch.setattr("distcore_data.cache.builder.INLINE_BYTES", INLINE)
    came = []
    for number in range(sweep.times(5, 200)):
        # From a tenth of the limit to twice it, near it as often as not.
        size = MOST * sweep.random.choice(
            [sweep.random.uniform(0.1, 2), sweep.random.gauss(1, 0.05)]
        )
        letters = sweep.random.randrange(5, 200)
        count = max(2, round(size / (letters + 4)))
        texts = [f"{each:0{letters}d}" for each in range(count)]
        root = tmp_path / str(number)
        config = {
            "input_features": [
                {"name": "word", "type": kind, "preprocessing": {"most_common": 10**6}}
            ],
            "output_features": [{"name": "bought", "type": "binary"}],
            "backend": {"type": "local", "cache_dir": str(root)},
        }
        data = {"word": texts, "bought": [str(each % 2) for each in range(count)]}
        cache, refused = None, ""
        try:
            cache = distcore.preprocess(config, data, view="none")
        except CacheError as error:
            refused = str(error)
        if cache is None:
            assert f"{MOST} are read back. Lower most_common" in refused
            assert not [*root.rglob("manifest.json")], refused
        else:
            assert set(texts) <= set(open_cache(cache).metadata["word"]["idx2str"])
            verify(cache)
        came.append("refused" if refused else "whole")
    sweep.tried(
        f"a {kind} vocabulary of a size around what is read back",
        len(came),
        f"{came.count('whole')} were read back whole, {came.count('refused')} were refused when "
        "they were written, and no manifest was left",
    )


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("packer", PACKERS)
def test_a_compressed_file(sweep, tmp_path, monkeypatch, packer):
    """A file of rows that unpacks to more than 200 times its size, and to more than files may in
    any case (64 kB here, in place of 1 GiB)."""
    monkeypatch.setattr("distcore_data.sources.unpacking.UNSUSPICIOUS", 64_000)
    came = []
    for number in range(sweep.times(3, 60)):
        rows = round(10 ** sweep.random.uniform(2, 6))
        # Rows of one value unpack to a thousand times, and those of many to three times.
        values = sweep.random.choice([1, 1, 10, 10**9])
        told = [sweep.random.randrange(values) for _ in range(min(rows, 20_000))]
        content = b"x,y\n" + "".join(f"{each},0\n" for each in told).encode() * (rows // len(told))
        packed = PACKERS[packer](content)
        path, scratch = tmp_path / f"{number}.csv.{packer}", tmp_path / f"scratch{number}"
        path.write_bytes(packed)
        scratch.mkdir()
        is_bomb = len(content) > max(64_000, 200 * len(packed))
        source, refused = None, ""
        try:
            source = open_source(path, {"x": "number"}, scratch=scratch)
        except DataError as error:
            refused = str(error)
        assert bool(refused) is is_bomb, (refused, len(content), len(packed))
        if source is None:
            assert f"{path.name}: it unpacks to more than 200 times its size" in refused
        else:
            found = sum(part.read().num_rows for part in source.partitions(1 << 20))
            assert found == content.count(b"\n") - 1
            source.close()
        came.append("refused" if refused else "read")
        assert not [*scratch.iterdir()]
    sweep.tried(
        f"a csv.{packer} file that unpacks to up to 2,000 times its size",
        len(came),
        f"{came.count('read')} were read whole, {came.count('refused')} were refused as made to "
        "fill a disk; nothing unpacked was left",
    )

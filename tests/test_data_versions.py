"""A plugin that encodes otherwise after an upgrade: its caches are not used, its models not opened, and both are told."""

import json

import pytest

SOURCE = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
{stated}

@hookimpl
def distcore_make_feature(name, column, role, options):
    import pyarrow.compute as pc
    from distcore_tabular import features

    made = features.make("number", column, role, options)
    encode = made.encode
    made.encode = lambda values, metadata: pc.multiply(encode(values, metadata), pc.cast({factor}, "float32"))
    return made

@hookimpl
def distcore_options_model(kind, name, role):
    from distcore_tabular.options_models import model_of

    return model_of("features", "number", role)
"""

CONFIG = {
    "input_features": [{"name": "age", "type": "loud"}],
    "output_features": [{"name": "bought", "type": "binary"}],
    "trainer": {"epochs": 1},
}


@pytest.fixture
def upgraded(place, distribution, tmp_path):
    """upgraded(version, stated, factor): from then on that version of distcore-loud is what is installed."""
    place.write("data.csv", "age,bought\n" + "".join(f"{n},{'yes' if n % 3 else 'no'}\n" for n in range(200)))
    place.write("config.yaml", json.dumps(CONFIG))

    def install(version, stated="", factor=1):
        folder = tmp_path / f"site-{len(list(tmp_path.iterdir()))}"
        source = SOURCE.format(stated=stated, factor=factor)
        distribution(folder, "distcore-loud", source, kind="features", entry="loud", version=version)

        def run(command, *more, code=0):
            return place.beside(folder, *place.words(command, *more), code=code)

        return run

    return install


def caches(place):
    """{key: the training rows' bytes}."""
    return {
        path.parts[-3]: path.read_bytes() for path in (place.folder / ".distcore_cache").glob("*/train/00000.parquet")
    }


def test_a_release_that_encodes_otherwise_misses_and_opens_no_model(place, upgraded):
    before = upgraded("0.1")
    before("train")
    (first,) = caches(place)
    after = upgraded("0.2", factor=2)
    said = after("preprocess")
    assert "was built with other versions: feature loud with distcore-loud 0.1, now distcore-loud 0.2." in said
    assert len(caches(place)) == 2
    assert len(set(caches(place).values())) == 2
    model = place.folder / "results" / "experiment_run"
    said = after("predict", "--model_path", model, code=2)
    assert "fitted with distcore-loud 0.1, and distcore-loud 0.2 encodes otherwise" in said
    assert "Install distcore-loud==0.1, or train again." in said
    assert "other versions" not in before("preprocess")
    assert first in caches(place)
    before("predict", "--model_path", model)


def test_a_release_that_states_that_it_encodes_alike_hits(place, upgraded):
    upgraded("0.1", "DATA_VERSION = 3")("train")
    first = caches(place)
    after = upgraded("0.2", "DATA_VERSION = {'loud': 3}")
    assert "other versions" not in after("preprocess")
    assert caches(place) == first
    said = after("predict", "--model_path", place.folder / "results" / "experiment_run")
    assert "fitted with distcore-loud 0.1 (data version 3); distcore-loud 0.2 (data version 3) encodes alike" in said


def test_a_data_version_that_is_none_is_the_plugins_fault(upgraded):
    said = upgraded("0.1", "DATA_VERSION = [1]")("preprocess", code=1)
    assert "distcore-loud 0.1 states a DATA_VERSION that is [1]" in said

"""A plugin that encodes otherwise after an upgrade: its caches are not used, its models not
opened, and both are told."""

import json

import pytest

pytestmark = pytest.mark.system

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
    """upgraded(version, stated, factor): from then on that version of distcore-loud is what is
    installed."""
    place.write(
        "data.csv",
        "age,bought\n" + "".join(f"{n},{'yes' if n % 3 else 'no'}\n" for n in range(200)),
    )
    place.write("config.yaml", json.dumps(CONFIG))

    def install(version, stated="", factor=1):
        folder = tmp_path / f"site-{len(list(tmp_path.iterdir()))}"
        source = SOURCE.format(stated=stated, factor=factor)
        distribution(
            folder, "distcore-loud", source, kind="features", entry="loud", version=version
        )

        def run(command, *more, code=0):
            return place.beside(folder, *place.words(command, *more), code=code)

        return run

    return install


def caches(place):
    """{key: the training rows' bytes}."""
    return {
        path.parts[-3]: path.read_bytes()
        for path in (place.folder / ".distcore_cache").glob("*/train/00000.parquet")
    }


def test_a_release_that_encodes_otherwise_misses_and_opens_no_model(place, upgraded):
    before = upgraded("0.1")
    before("train")
    (first,) = caches(place)
    after = upgraded("0.2", factor=2)
    said = after("preprocess")
    assert (
        "was built with other versions: feature loud with distcore-loud 0.1, now distcore-loud 0.2."
        in said
    )
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
    assert (
        "fitted with distcore-loud 0.1 (data version 3); distcore-loud 0.2 (data version 3) "
        "encodes alike" in said
    )


def test_a_data_version_that_is_none_is_the_plugins_fault(upgraded):
    said = upgraded("0.1", "DATA_VERSION = [1]")("preprocess", code=1)
    assert "distcore-loud 0.1 states a DATA_VERSION that is [1]" in said


TOKENIZER = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
{stated}

@hookimpl
def distcore_make_member(kind, name, options, context):
    import pyarrow.compute as pc

    return lambda texts: pc.split_pattern(texts, {separator!r})
"""


@pytest.fixture
def tokenizer(place, distribution, tmp_path):
    """tokenizer(version, separator, stated): from then on that version of distcore-dash is what
    is installed."""
    rows = "".join(f"a{n % 3}-b+c{n % 2},{'yes' if n % 3 else 'no'}\n" for n in range(200))
    place.write("data.csv", "words,bought\n" + rows)
    features = {
        "input_features": [{"name": "words", "type": "set", "preprocessing": {"tokenizer": "dash"}}]
    }
    place.write("config.yaml", json.dumps(CONFIG | features))

    def install(version, separator="-", stated=""):
        folder = tmp_path / f"site-{version}-{stated[-2:].strip()}"
        source = TOKENIZER.format(stated=stated, separator=separator)
        distribution(
            folder,
            "distcore-dash",
            source,
            kind="tabular.tokenizers",
            entry="dash",
            version=version,
        )

        def run(command, *more, code=0):
            return place.beside(folder, *place.words(command, *more), code=code)

        return run

    return install


def vocabulary(place):
    model = json.loads(
        (place.folder / "results" / "experiment_run" / "model" / "model.json").read_text()
    )
    return model["metadata"]["words"]["idx2str"]


def test_a_tokenizer_that_was_changed_misses_and_opens_no_model(place, tokenizer):
    before = tokenizer("0.1")
    before("train")
    assert {"a0", "b+c1"} < set(vocabulary(place))
    (first,) = caches(place)
    after = tokenizer("0.2", "+")
    said = after("preprocess")
    assert (
        "was built with other versions: tokenizer dash with distcore-dash 0.1, now distcore-dash "
        "0.2." in said
    )
    assert len(caches(place)) == 2
    model = place.folder / "results" / "experiment_run"
    said = after("predict", "--model_path", model, code=2)
    assert (
        "by tabular.tokenizers 'dash' of distcore-dash 0.1, and distcore-dash 0.2 encodes otherwise"
        in said
    )
    assert "Install distcore-dash==0.1, or train again." in said
    assert "other versions" not in before("preprocess")
    assert first in caches(place)
    before("predict", "--model_path", model)


def test_a_tokenizer_that_states_that_it_encodes_alike_hits(place, tokenizer):
    tokenizer("0.1", stated="DATA_VERSION = 3")("train")
    first = caches(place)
    after = tokenizer("0.2", stated="DATA_VERSION = 3")
    assert "other versions" not in after("preprocess")
    assert caches(place) == first
    said = after("predict", "--model_path", place.folder / "results" / "experiment_run")
    assert (
        "distcore-dash 0.1 (data version 3); distcore-dash 0.2 (data version 3) encodes alike"
        in said
    )


def test_without_the_tokenizer_a_model_says_which_is_missing(place, tokenizer):
    tokenizer("0.1")("train")
    said = place.refused(
        *place.words("predict", "--model_path", place.folder / "results" / "experiment_run")
    )
    assert (
        "'dash'. Installed: characters, comma," in said
    )  # whether its role has a name depends on what was imported


BETWEEN = """
from distcore_core.hooks import hookimpl
from pydantic import BaseModel, ConfigDict, Field

DISTCORE_API = (1, 0)

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    between: str = Field("-", min_length=1, description="What stands between two tokens.")

@hookimpl
def distcore_options_model(kind, name):
    return Options

@hookimpl
def distcore_make_member(kind, name, options, context):
    import pyarrow.compute as pc

    return lambda texts: pc.split_pattern(texts, options.between)
"""


def test_a_tokenizer_with_options_is_a_section_of_its_own(place, distribution, tmp_path):
    site = tmp_path / "site"
    distribution(site, "distcore-between", BETWEEN, kind="tabular.tokenizers", entry="between")
    place.write(
        "data.csv",
        "words,bought\n" + "".join(f"a{n % 3}+b c,{'yes' if n % 3 else 'no'}\n" for n in range(99)),
    )
    config = """\
input_features:
  - name: words
    type: text
    preprocessing:
      tokenizer: {type: between, between: "+"}
output_features: [{name: bought, type: binary}]
trainer: {epochs: 1}
"""
    place.write("config.yaml", config)
    place.beside(site, *place.words("train"))
    assert {"a0", "b c"} < set(vocabulary(place))
    place.write("config.yaml", config.replace("{type: between, between", "{type: between, betwen"))
    said = place.beside(site, *place.words("train"), code=2)
    assert (
        "line 5: input_features[0].preprocessing.tokenizer.betwen: unknown option 'betwen'" in said
    )
    assert "did you mean 'between'?" in said
    assert "What stands between two tokens." in place.beside(site, "schema")


FORMAT = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_make_cache(name):
    from distcore_parquet.format import ParquetFormat

    return ParquetFormat()
"""


def test_a_cache_format_of_another_release_misses(place, distribution, tmp_path):
    config = (place.folder / "config.yaml").read_text()
    place.write(
        "config.yaml",
        config.replace("backend: local", "backend: {type: local, cache_format: {type: flat}}"),
    )
    for version in ("0.1", "0.2"):
        distribution(
            tmp_path / version,
            "distcore-flat",
            FORMAT,
            kind="caches",
            entry="flat",
            version=version,
        )
    place.beside(tmp_path / "0.1", *place.words("preprocess"))
    said = place.beside(tmp_path / "0.2", *place.words("preprocess"))
    assert (
        "was built with other versions: cache format flat with distcore-flat 0.1, now "
        "distcore-flat 0.2." in said
    )
    assert len(caches(place)) == 2

"""Any two releases of a plugin that encodes: its caches are used and its models opened if and only
if both state the same data version, or are the same release; and it is said in words."""

import json
import shutil

import pytest
from tests.test_data_versions import CONFIG, FORMAT, SOURCE, TOKENIZER

STATED = {
    "": None,
    "DATA_VERSION = 1": "1",
    "DATA_VERSION = 2": "2",
    "DATA_VERSION = {name: '1'}": "1",
}
"""{what a release states: its data version}; None: that of its release."""

CONFIGS = {
    "features": CONFIG,
    "tabular.tokenizers": CONFIG
    | {
        "input_features": [{"name": "words", "type": "set", "preprocessing": {"tokenizer": "loud"}}]
    },
    "caches": CONFIG
    | {
        "input_features": [{"name": "age", "type": "number"}],
        "backend": {"type": "local", "cache_format": {"type": "flat"}},
    },
}
NAMES = {"features": "loud", "tabular.tokenizers": "loud", "caches": "flat"}


def source(kind, stated):
    name = NAMES[kind]
    stated = stated.replace("name", repr(name))
    if kind == "features":
        return SOURCE.format(stated=stated, factor=1)
    if kind == "caches":
        return FORMAT + f"\n{stated}\n"
    return TOKENIZER.format(stated=stated, separator="-")


@pytest.mark.parametrize("kind", CONFIGS)
def test_two_releases(sweep, place, distribution, tmp_path, kind):
    rows = "".join(f"{n},a{n % 3}-b+c{n % 2},{'yes' if n % 3 else 'no'}\n" for n in range(200))
    place.write("data.csv", "age,words,bought\n" + rows)
    place.write("config.yaml", json.dumps(CONFIGS[kind]))
    came = []
    for number in range(sweep.times(1, 12)):
        sites, versions = [], []
        for each in ("before", "after"):
            release = sweep.random.choice(["0.1", "0.2"])
            stated, version = sweep.random.choice([*STATED.items()])
            site = tmp_path / f"{number}-{each}"
            distribution(
                site, "distcore-loud", source(kind, stated),
                kind=kind, entry=NAMES[kind], version=release,
            )  # fmt: skip
            sites.append(site)
            versions.append((version, None if version else release))
        alike = versions[0] == versions[1]
        for each in (place.folder / "results", place.folder / ".distcore_cache"):
            shutil.rmtree(each, ignore_errors=True)
        place.beside(sites[0], *place.words("train"))
        said = place.beside(sites[1], *place.words("preprocess"))
        assert ("was built with other versions" in said) is not alike, (versions, said)
        caches = [*(place.folder / ".distcore_cache").glob("*/manifest.json")]
        assert len(caches) == (1 if alike else 2), (versions, caches)
        if kind != "caches":  # a model has no need of its cache's format
            words = place.words("predict", "--model_path", place.results)
            said = place.beside(sites[1], *words, code=0 if alike else 2)
            assert ("encodes otherwise" in said) is not alike, (versions, said)
        came.append(alike)
    opened = "" if kind == "caches" else ", and its model"
    sweep.tried(
        f"two releases of a plugin of {kind} that state any data version, or none",
        len(came),
        f"{sum(came)} encode alike and the cache{opened} was used, {len(came) - sum(came)} do not: "
        f"the cache was made anew{', the model refused,' if opened else ','} and it was told",
    )

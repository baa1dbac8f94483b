"""What holds of core for whatever hypothesis makes up; core's own tests need nothing but pytest."""

import hashlib
import json
import os

import xxhash
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore.config.yaml_document import from_mapping, parse
from distcore_core.errors import ConfigError
from distcore_core.io.digest import Digest, HashingFile


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "seek", "truncate", "end"]),
            st.binary(max_size=9),
            st.integers(0, 20),
        ),
        max_size=12,
    )
)
def test_hashing_file_agrees_with_the_bytes_whatever_is_done_to_it(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("hash") / "f"
    with HashingFile(path) as file:
        for step, data, place in steps:
            if step == "write":
                file.write(data)
            elif step == "seek":
                file.seek(place)
            elif step == "end":
                file.seek(0, os.SEEK_END)
            else:
                file.truncate(place)
        digest = file.digest()
    content = path.read_bytes()
    assert digest == Digest(
        len(content), xxhash.xxh3_64_hexdigest(content), hashlib.sha256(content).hexdigest()
    )


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aäß😀 :#-'\"\\{}[],&*!|>%@`\n"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc:#- 1.", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abcdef", min_size=1), plain, max_size=5))
@settings(max_examples=60, deadline=None)
def test_what_yaml_dumps_is_read_back(values: dict[str, object]) -> None:
    dumped = yaml.safe_dump(values, allow_unicode=True)
    assert parse(dumped).values == values
    assert from_mapping(values).values == values


@given(st.dictionaries(st.text("abcdef", min_size=1), plain, max_size=5))
@settings(max_examples=60, deadline=None)
def test_json_is_read_as_json(values: dict[str, object]) -> None:
    assert parse(json.dumps(values, ensure_ascii=False, indent="\t")).values == values


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_document_or_a_config_error(text: str) -> None:
    try:
        found: object = parse(text).values
    except ConfigError as error:
        found = error
    assert isinstance(found, dict) or str(found).endswith(".")

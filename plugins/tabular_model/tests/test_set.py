"""Set inputs: members, missing sets, and their encoder."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.config.issues import validate
from distcore_core.contracts import Column
from distcore_core.errors import ConfigError, DataError
from distcore_tabular import options_text
from distcore_tabular.options_text import SetInput
from distcore_tabular.set import SetFeature, distinct
from distcore_torch.batch import Ragged


def feature(encoder=None, **preprocessing):
    values = {"preprocessing": preprocessing, **({"encoder": encoder} if encoder else {})}
    return SetFeature("s", "input", validate(SetInput, values, ""))


def sets(*values):
    return pa.array(values, pa.string())


def fitted(made, *values):
    return made.finish(made.partial(sets(*values)))


def test_members_are_the_sorted_distinct_codes():
    made = feature()
    metadata = fitted(made, "b a b", "c b", "a b")
    assert metadata["idx2str"] == ["<UNK>", "b", "a", "c"]
    encoded = made.encode(sets("c a a", "", "x y b", None), metadata)
    assert encoded.type == pa.list_(pa.int32())
    assert encoded.to_pylist() == [[2, 3], [], [0, 1], [0]]
    assert made.column(metadata) == Column(name="s", dtype="int32", width=None)


def test_lowercase_applies_to_the_vocabulary_and_to_the_rows():
    made = feature(lowercase=True, tokenizer="comma", most_common=1)
    metadata = fitted(made, "A , a,B")
    assert metadata["idx2str"] == ["<UNK>", "a"]
    assert made.encode(sets("A,B"), metadata).to_pylist() == [[0, 1]]


def test_most_common_does_not_count_the_unknown_that_has_a_code_already():
    assert fitted(feature(most_common=1), "<UNK> a", "<UNK>")["idx2str"] == ["<UNK>", "a"]


@pytest.mark.parametrize(
    ("options", "members"),
    [
        ({}, ["<UNK>"]),
        ({"fill_value": "b b z"}, ["b", "z"]),
        ({"missing_value_strategy": "fill_with_mode"}, ["a", "b"]),
        ({"missing_value_strategy": "bfill"}, ["<UNK>"]),
    ],
)
def test_missing_sets(options, members):
    made = feature(**options)
    metadata = fitted(made, "a b", None, "a b", "c")
    codes = made.encode(sets(None), metadata).to_pylist()[0]
    assert sorted(metadata["idx2str"][code] for code in codes) == sorted(members)


def test_all_missing_is_told():
    with pytest.raises(DataError, match="Column 's' has no value in any row, and a set "):
        fitted(feature(), None)


def test_white_space_alone_is_told():
    with pytest.raises(DataError, match=r"Column 's' has no token \(only what"):
        fitted(feature(), "  ", None, "\t")


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.none() | st.text("ab c", max_size=8), max_size=12), cut=st.integers(0, 12))
def test_halves_merge_to_the_whole_and_rows_are_encoded_one_by_one(rows, cut):
    made = feature(fill_value="a z")
    values = sets("a", *rows)
    halves = [made.partial(values[:cut]), made.partial(values[cut:])]
    whole = made.finish(made.partial(values))
    assert made.finish(made.merge(*halves)) == whole
    assert made.finish(made.merge(*reversed(halves))) == whole
    one_by_one = [made.encode(values[i : i + 1], whole).to_pylist()[0] for i in range(len(values))]
    assert made.encode(values, whole).to_pylist() == one_by_one


def encoder_of(**options):
    torch.manual_seed(0)
    return feature(options or None).network().encoder({"idx2str": ["<UNK>", "a", "b", "c"]}).eval()


BATCH = Ragged(torch.tensor([1, 3, 2], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))


def test_a_set_is_the_sum_of_its_members_vectors():
    encoder = encoder_of()
    weight = encoder.bag.table.weight
    expected = torch.stack([weight[1] + weight[3], torch.zeros(4), weight[2]])
    torch.testing.assert_close(encoder(BATCH), expected)
    assert encoder.output_size == 4


def test_layers_and_one_hot_sets():
    encoder = encoder_of(representation="sparse")
    assert encoder(BATCH).tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    encoder = encoder_of(num_fc_layers=2, output_size=7, norm="layer", dropout=0.1)
    assert encoder(BATCH).shape == (3, 7)


def test_outputs_of_sets_and_texts_are_refused():
    for name in ("set", "text"):
        with pytest.raises(
            ConfigError, match="outputs are known in Ludwig, but not carried out here"
        ):
            validate(options_text.MODELS["features", name, "output"], {"decoder": {}}, "")


def test_a_thousand_rows_agree_with_python():
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(list("abcdefg"), rng.integers(0, 9))) for _ in range(1000)]
    made = feature()
    metadata = fitted(made, *rows)
    place = {word: code for code, word in enumerate(metadata["idx2str"])}
    expected = [sorted({place[word] for word in row.split()}) for row in rows]
    assert made.encode(sets(*rows), metadata).to_pylist() == expected


@pytest.mark.parametrize("size", [9, (1 << 31) // 5 - 1, (1 << 31) // 5 + 1, (1 << 31) - 1])
def test_members_of_vocabularies_of_any_size_are_sorted_and_distinct(size):
    """Row and code together just fit into 32 bits, or do not."""
    rows = [[size - 1, 3, size - 1], [], [0, 0], [8, 0, size - 1], [size - 1]]
    codes = np.array([code for row in rows for code in row], np.int32)
    members, counts = distinct(codes, np.array([len(row) for row in rows]), size)
    assert members.dtype == np.int32
    assert members.tolist() == [code for row in rows for code in sorted(set(row))]
    assert counts.tolist() == [len(set(row)) for row in rows]
    none = distinct(np.zeros(0, np.int32), np.zeros(2, np.int64), size)
    assert [len(none[0]), *none[1]] == [0, 0, 0]


def test_another_vocabulary_is_not_taken_for_the_last_one():
    made = feature()
    first, second = fitted(made, "a b", "a"), fitted(made, "c a", "c")
    for metadata, codes in ((first, [[1, 2]]), (second, [[0, 2]]), (first, [[1, 2]])):
        assert made.encode(sets("a b"), metadata).to_pylist() == codes


def test_the_data_half_of_texts_and_sets_imports_no_torch():
    code = (
        "import sys, distcore_tabular.text, distcore_tabular.set; assert not {'torch', 'pandas'} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_arguments_that_no_norm_has_are_told():
    with pytest.raises(ConfigError, match=r"norm_params: a norm has no argument 'nonsense'"):
        feature(encoder={"norm_params": {"nonsense": 1}})

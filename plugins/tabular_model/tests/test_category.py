"""Feature category: vocabulary by (count, value), unknown and missing values, classes and their
weights."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from functools import reduce
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import ConfigError, DataError
from distcore_data.arrow_list import ArrowList
from distcore_data.json_text import in_line
from distcore_tabular import category
from distcore_tabular.category import CategoryFeature
from distcore_tabular.options import CategoryInputOptions, CategoryOutputOptions
from distcore_tabular.vocabulary import NO_CLASS
from distcore_testing.features import FeatureSuite

values_ = st.lists(
    st.none() | st.sampled_from(["a", "b", "c", "<UNK>", "ä"]), min_size=1, max_size=40
)


def feature(
    role: str = "input", loss: Any = None, encoder: Any = None, **preprocessing: Any
) -> CategoryFeature:
    if role == "input":
        options: Any = CategoryInputOptions.model_validate(
            {"preprocessing": preprocessing, "encoder": encoder}
        )
    else:
        options = CategoryOutputOptions.model_validate(
            {"preprocessing": preprocessing, "loss": loss}
        )
    return CategoryFeature("c", role, options)


def column(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.utf8()).dictionary_encode()


def fitted(made: CategoryFeature, values: list[str | None]) -> dict[str, Any]:
    return made.finish(made.partial(column(values)))


def test_slices_of_a_block_are_encoded_as_the_block() -> None:
    values = [None if row % 9 == 4 else f" {row * 7 % 83}" for row in range(300)]
    made, whole = feature(most_common=50), column(values)
    metadata = made.finish(made.partial(whole))
    codes = made.encode(whole, metadata).to_pylist()
    for start, length in ((0, 300), (7, 40), (250, 50), (3, 1), (5, 0)):
        part = made.encode(whole.slice(start, length), metadata)
        assert part.type == pa.int32()
        assert part.to_pylist() == codes[start : start + length]


class TestCategoryIsAFeature(FeatureSuite):
    name = "category"
    roles = ("input", "output")

    def values(self) -> pa.Array:
        return column(["red", "green", None, "blue", " red", "pink"] * 40)


class TestManyClassesAreAFeature(TestCategoryIsAFeature):
    def values(self) -> pa.Array:
        return column([f"class {number % 70}" for number in range(400)])


@given(values_, st.lists(st.integers(0, 40), max_size=4), st.randoms())
@settings(max_examples=60, deadline=None)
def test_metadata_is_the_same_for_any_partition_and_order(values, cuts, random) -> None:
    made = feature(missing_value_strategy="fill_with_mode")
    array = column(values)
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [made.partial(array[a:b]) for a, b in pairwise(edges)]
    random.shuffle(parts)
    if not any(values):
        return
    assert in_line(made.finish(reduce(made.merge, parts)), False) == in_line(
        fitted(made, values), False
    )


@given(values_, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_slicing_commutes_with_encoding_and_decoding_gives_the_values_back(
    values, start, stop
) -> None:
    if not any(values):
        return
    made = feature()
    metadata = fitted(made, values)
    codes = made.encode(column(values), metadata)
    assert made.encode(column(values)[start:stop], metadata).equals(codes[start:stop])
    back = made.decode(np.asarray(codes), metadata).to_pylist()
    assert back == ["<UNK>" if value is None else value for value in values]


def test_codes_go_by_count_then_value_and_unknown_is_first() -> None:
    made = feature()
    metadata = fitted(made, ["b", "a", "c", "c", None])
    assert metadata["idx2str"] == ["<UNK>", "c", "a", "b"]
    assert metadata["counts"] == [1, 2, 1, 1]
    assert metadata["vocab_size"] == 4
    codes = made.encode(column(["c", "never seen", None, "b "]), metadata)
    assert codes.type == pa.int32()
    assert codes.to_pylist() == [1, 0, 0, 3]


def test_who_fitted_a_vocabulary_encodes_without_making_it_of_the_list_again(monkeypatch) -> None:
    made = feature()
    metadata = fitted(made, ["b", "a", "c", "c", None])
    monkeypatch.delattr("distcore_tabular.feature.Labels")
    assert made.vocabulary(metadata).labels.to_pylist() == metadata["idx2str"]
    assert made.encode(column(["c", "b"]), metadata).to_pylist() == [1, 3]
    with pytest.raises(NameError):  # of a list it is made
        made.encode(column(["c"]), json.loads(in_line(metadata, False)))


def test_other_values_in_the_memory_of_those_before_have_codes_of_their_own() -> None:
    """They were compared with themselves, and had the codes of those before."""
    made = feature()
    metadata = fitted(made, ["b", "a", "c", "c", None])
    text = bytearray(b"cb")
    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    words = pa.Array.from_buffers(pa.utf8(), 2, [None, ends, pa.py_buffer(text)])
    codes = pa.array([0, 1], pa.int32())
    rows = pa.DictionaryArray.from_arrays(codes, words)
    assert made.encode(rows, metadata).to_pylist() == [1, 3]
    text[:] = b"ac"
    assert made.encode(rows, metadata).to_pylist() == [2, 1]


def test_the_values_of_a_block_are_looked_up_once_for_all_of_its_shards(monkeypatch) -> None:
    made, looked_up = feature(), []
    metadata = fitted(made, ["b", "a", "c", "c", None])
    find = category.find
    monkeypatch.setattr(category, "find", lambda *given: looked_up.append(1) or find(*given))
    block = column(["c", "b", None, "a", "d", "c"])
    assert made.encode(block[:3], metadata).to_pylist() == [1, 3, 0]
    assert made.encode(block[3:], metadata).to_pylist() == [2, 0, 1]
    assert len(looked_up) == 1
    assert pickle.loads(pickle.dumps(made))._encoded is None  # noqa: S301
    # As many other values, and the same ones by other metadata, have codes of their own.
    assert made.encode(column(["b", "c", None, "a", "d", "c"]), metadata)[0].as_py() == 3
    other = fitted(feature(), ["b", "b", "d"])
    assert made.encode(block, other).to_pylist() == [0, 1, 0, 0, 2, 0]
    assert made.encode(block, metadata).to_pylist() == [1, 3, 0, 2, 0, 1]


def test_labels_and_counts_are_held_by_arrow() -> None:
    metadata = fitted(feature(), ["b", "a", "c", "c", None])
    assert type(metadata["idx2str"]) is type(metadata["counts"]) is ArrowList


@given(
    st.lists(st.none() | st.sampled_from(["a", "b", "ä", "<UNK>", "c", "é", "𝄞"]), min_size=2),
    st.sampled_from(["input", "output"]),
    st.sampled_from([1, 2, 3, 100]),
    st.sampled_from(["fill_with_const", "fill_with_mode", "drop_row"]),
    st.sampled_from(["<UNK>", "b", "new"]),
)
@settings(deadline=None)
def test_the_vocabulary_is_what_counting_in_a_dict_gives(values, role, most, strategy, fill):
    preprocessing = {"most_common": most, "missing_value_strategy": strategy, "fill_value": fill}
    made = feature(role, **preprocessing)
    found = dict(Counter(value for value in values if value is not None).most_common())
    missing = values.count(None)
    filler = {"fill_with_const": fill, "drop_row": None}.get(strategy)
    if strategy == "fill_with_mode" and found:
        filler = min(found, key=lambda label: (-found[label], label))
    if found and filler is not None and missing:
        found[filler] = found.get(filler, 0) + missing
    had, unknown = "<UNK>" in found, found.pop("<UNK>", 0)
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    kept = ranked[:most]
    if role == "input" or had or len(kept) < len(ranked):
        kept = [("<UNK>", unknown + sum(count for _, count in ranked[most:])), *kept]
    labels = [label for label, _ in kept]
    try:
        metadata = fitted(made, values)
    except DataError:
        assert not any(values) or (role == "output" and len(kept) < 2)
        return
    assert metadata["idx2str"] == labels
    assert metadata["counts"] == [count for _, count in kept]
    place = labels.index("<UNK>") if "<UNK>" in labels else NO_CLASS
    assert metadata["unknown"] == place
    assert metadata["missing"] == (labels.index(filler) if filler in labels else place)


def test_most_common_leaves_the_rest_to_unknown() -> None:
    made = feature(most_common=1)
    metadata = fitted(made, ["a", "a", "b", "c"])
    assert (metadata["idx2str"], metadata["counts"]) == (["<UNK>", "a"], [2, 2])
    output = fitted(feature("output", most_common=1), ["a", "a", "b", "c"])
    assert (output["idx2str"], output["counts"]) == (["<UNK>", "a"], [2, 2])


@pytest.mark.parametrize(
    ("preprocessing", "label"),
    [
        ({}, "<UNK>"),
        ({"fill_value": "b"}, "b"),
        ({"fill_value": "none"}, "none"),
        ({"missing_value_strategy": "fill_with_mode"}, "a"),
        ({"missing_value_strategy": "drop_row"}, "<UNK>"),
    ],
)
def test_missing_values_become(preprocessing: dict[str, Any], label: str) -> None:
    made = feature(**preprocessing)
    metadata = fitted(made, ["a", "a", "b", None])
    assert made.decode(np.asarray(made.encode(column([None]), metadata)), metadata).to_pylist() == [
        label
    ]
    counted = sum(metadata["counts"])
    assert counted == (3 if preprocessing.get("missing_value_strategy") == "drop_row" else 4)


@pytest.mark.parametrize(
    "values", [["1", "2", "2"], ["1.0", "2.0", "2.0"], [1.0, 2.0, 2.0], [1, 2, 2]]
)
def test_a_whole_number_is_one_value_however_a_frame_has_it(values) -> None:
    """pandas makes 3 a 3.0 as soon as a row of the column is missing; 3.5 and 03 are values of
    their own."""
    made = feature()
    metadata = made.finish(made.partial(pa.array(values)))
    expected = [2, 1, 0]
    for other in (
        ["1", "2", None],
        ["1.0", "2.0", "7.0"],
        ["1", "2.0", "1.5"],
        ["1.0", "2", "01"],
        ["1", "2", "1.00"],
    ):
        assert made.encode(column(other), metadata).to_pylist() == expected


def test_spellings_that_are_both_there_stay_apart() -> None:
    made = feature()
    metadata = fitted(made, ["1", "1", "1.0"])
    assert made.encode(column(["1", "1.0"]), metadata).to_pylist() == [1, 2]


@pytest.mark.parametrize("role", ["input", "output"])
def test_what_most_common_leaves_out_stays_unknown_however_alike_it_is(role) -> None:
    """So one dataset has the codes that it always had; what was cut off is not another's value."""
    values = ["True", "True", "7", "7", "true", "2024-01-05 00:00:00", "7.0", "7e+00"]
    made = feature(role, most_common=2)
    codes = made.encode(column(values), fitted(made, values)).to_pylist()
    assert codes == [2, 2, 1, 1, 0, 0, 1, 0]
    whole = feature(role, most_common=2)  # as many as there are, so none was cut off
    metadata = fitted(whole, ["True", "7"])
    assert whole.encode(column(["true", "7e+00"]), metadata).to_pylist() == [
        metadata["idx2str"].index(each) for each in ("True", "7")
    ]


def test_of_several_sets_a_value_that_is_kept_is_found_in_all_spellings() -> None:
    made = feature(most_common=2)
    values = ["True", "true", "7e+00", "7", "true", "2024-01-05"]
    metadata = made.finish(made.of_sets(made.partial(column(values))))
    assert metadata["idx2str"] == ["<UNK>", "True", "7"]
    assert made.encode(column(values), metadata).to_pylist() == [1, 1, 2, 2, 1, 0]


def test_lowercase() -> None:
    made = feature(lowercase=True)
    metadata = fitted(made, ["Red", "RED", "blue"])
    assert metadata["idx2str"] == ["<UNK>", "red", "blue"]
    assert made.encode(column(["rED", "Blue"]), metadata).to_pylist() == [1, 2]


@pytest.mark.parametrize("role", ["input", "output"])
def test_lowercase_leaves_the_unknown_that_missing_values_become_as_it_is(role) -> None:
    made = feature(role, lowercase=True, missing_value_strategy="fill_with_const")
    metadata = fitted(made, ["A", "b", None])
    assert metadata["idx2str"] == ["<UNK>", "a", "b"]
    assert made.encode(column(["A", None, "z"]), metadata).to_pylist() == [1, 0, 0]


def test_an_output_has_no_unknown_class_and_marks_a_foreign_target() -> None:
    made = feature("output")
    metadata = fitted(made, ["a", "b", "a", None])
    assert metadata["idx2str"] == ["a", "b"]
    assert made.encode(column(["b", "z"]), metadata).to_pylist() == [1, NO_CLASS]


def test_a_foreign_target_counts_neither_in_the_loss_nor_in_the_metrics() -> None:
    import torch

    made = feature("output")
    metadata = fitted(made, ["a", "b", "c", "a"])
    network = made.network()
    logits = torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    target = torch.tensor([0, NO_CLASS, 1], dtype=torch.int32)
    loss = network.loss(logits, target, metadata)
    assert loss[1] == 0
    known = [0, 2]
    for name, metric in network.metrics(metadata).items():
        other = network.metrics(metadata)[name]
        metric.update(network.output(logits, metadata), target)
        other.update(network.output(logits[known], metadata), target[known])
        assert torch.equal(metric.compute(), other.compute()), name


class Rows(dict[str, Any]):
    """A batch of targets alone."""

    @property
    def rows(self) -> int:
        return len(self["c"])


def test_rows_of_a_class_that_the_model_does_not_know_are_told_and_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import torch

    from distcore_torch.training.scores import Scores

    made = feature("output")
    features: Any = SimpleNamespace(
        outputs=[made], metadata={"c": fitted(made, ["a", "b", "a", "b"])}
    )
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 4.0]])
    target = torch.tensor([0, 1, NO_CLASS, NO_CLASS], dtype=torch.int32)

    def scores(rows: slice) -> dict[str, Any]:
        found = Scores(features, split="test")
        found.update_logits({"c": logits[rows]}, Rows(c=target[rows]))
        return found.compute()

    known = scores(slice(0, 2))
    assert not caplog.text
    assert scores(slice(0, 4)) == known
    assert "2 of 4 rows of the test split have a value of c that the model was not" in caplog.text
    assert set(scores(slice(2, 4))["c"].values()) == {None}


def test_probabilities_of_many_classes_that_are_nan_in_one_row_end_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were counted in no bin that there is, an error of torch's, in training, too."""
    import torch

    from distcore_torch.training.scores import MergedScores, Scores

    made, labels = feature("output"), [f"c{number}" for number in range(70)]
    features: Any = SimpleNamespace(outputs=[made], metadata={"c": fitted(made, labels)})
    logits, target = torch.eye(70), torch.arange(70, dtype=torch.int32)
    logits[69, 3] = torch.nan
    merged = MergedScores(Scores(features, split="test"))
    for rows in (slice(0, 69), slice(69, 70)):
        part = Scores(features)
        part.update_logits({"c": logits[rows]}, Rows(c=target[rows]))
        merged.add(part.state())
    found = merged.compute()["c"]
    assert (set(found), set(found.values())) == (set(part.outputs[0].metrics) | {"loss"}, {None})
    assert "In 1 of 70 rows of the test split the output c is not finite" in caplog.text


def test_one_class_or_no_value_is_refused() -> None:
    with pytest.raises(DataError, match="'c' has one class only, 'a'"):
        fitted(feature("output"), ["a", "a", None])
    for values in ([None], [" ", None, "\t"]):
        with pytest.raises(DataError, match="'c' has no value in any row"):
            fitted(feature(), values)
    assert fitted(feature(), ["a"])["vocab_size"] == 2


def test_class_weights_keep_the_mean_loss() -> None:
    made = feature("output", loss={"class_weights": {"a": 1.0, "b": 4.0}})
    metadata = fitted(made, ["a", "a", "a", "b"])
    weights = metadata["class_weights"]
    assert weights[1] / weights[0] == pytest.approx(4.0)
    assert sum(w * n for w, n in zip(weights, metadata["counts"], strict=True)) == pytest.approx(
        4.0
    )


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"a": 1.0}, r"has none for \['b'\]"),
        ({"a": 1.0, "b": 1.0, "z": 2.0}, r"names \['z'\]"),
        ([1.0], "has 1 weights for 2 classes"),
        ([0.0, 0.0], "gives no row any weight"),
    ],
)
def test_class_weights_must_fit_the_classes(weights: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fitted(feature("output", loss={"class_weights": weights}), ["a", "b"])


@pytest.mark.parametrize(
    ("encoder", "size"),
    [
        ({"embedding_size": 2}, 2),
        ({"type": "sparse"}, 4),
        ({"type": "onehot"}, 4),
        ("passthrough", 1),
    ],
)
def test_encoders(encoder: Any, size: int) -> None:
    import torch

    made = feature(encoder=encoder)
    encoding = made.network().encoder(fitted(made, ["a", "b", "c"]))
    assert encoding(torch.tensor([0, 3, 1], dtype=torch.int32)).shape == (3, size)


def test_a_vector_that_no_row_trains_is_zero() -> None:
    import torch

    made = feature()
    code = torch.tensor([0], dtype=torch.int32)
    assert not made.network().encoder(fitted(made, ["a", "b"]))(code).any()
    assert made.network().encoder(fitted(made, ["a", "b", None]))(code).all()


def test_predictions_are_named_as_in_ludwig() -> None:
    made = feature("output")
    metadata = fitted(made, ["low", "low", "high"])
    batch = made.network().predictions(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32), metadata)
    assert batch.to_pydict() == {
        "c_predictions": ["high", "low"],
        "c_probabilities_low": [0.25, 0.5],
        "c_probabilities_high": [0.75, 0.5],
        "c_probability": [0.75, 0.5],
    }

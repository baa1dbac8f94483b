"""Text inputs: vocabulary, missing values, frames and cuts, options, and the encoders of texts."""

import itertools
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from distcore_core.config.issues import validate
from distcore_core.contracts import Column
from distcore_core.errors import ConfigError, DataError, UserError
from distcore_tabular import encoders, text_encoders
from distcore_tabular.options_text import TextInput
from distcore_tabular.text import TextFeature
from distcore_tabular.text_encoders import Convolution, padded, reduce_sequence
from distcore_torch.batch import Ragged

SPECIAL = ["<EOS>", "<SOS>", "<PAD>", "<UNK>"]


def feature(encoder=None, **preprocessing):
    values = {"preprocessing": preprocessing, **({"encoder": encoder} if encoder else {})}
    return TextFeature("t", "input", validate(TextInput, values, ""))


def texts(*values):
    return pa.array(values, pa.string())


def fitted(made, *values):
    return made.finish(made.partial(texts(*values)))


def ragged(*rows):
    lengths = [len(row) for row in rows]
    values = torch.tensor([code for row in rows for code in row], dtype=torch.int32)
    return Ragged(values, torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int64))


# ------------------------------------------------------------------ from data to codes


def test_the_vocabulary_is_special_words_then_the_most_frequent():
    metadata = fitted(feature(), "b a b", "c, b a", None)
    assert metadata["idx2str"] == [*SPECIAL, "b", "a", ",", "c"]
    assert (metadata["rows"], metadata["missing"]) == (3, 1)


def test_most_common_counts_words_and_lowercase_comes_first():
    metadata = fitted(feature(most_common=1, lowercase=True, tokenizer="space"), "A a b")
    assert metadata["idx2str"] == [*SPECIAL, "a"]


def test_most_common_does_not_count_words_that_have_codes_already():
    metadata = fitted(feature(most_common=1, tokenizer="space"), "<UNK> <PAD> <UNK> <PAD> a a b")
    assert metadata["idx2str"] == [*SPECIAL, "a"]


def test_a_text_is_framed_and_unknown_words_are_told():
    made = feature()
    metadata = fitted(made, "a b")
    encoded = made.encode(texts("b x a", "", None), metadata)
    assert encoded.type == pa.list_(pa.int32())
    assert encoded.to_pylist() == [[1, 5, 3, 4], [1, 0], [1, 3, 0]]


def test_a_text_is_cut_at_its_longest():
    made = feature(max_sequence_length=3)
    metadata = fitted(made, "a b c d")
    assert made.encode(texts("a b c d", "a"), metadata).to_pylist() == [[1, 4, 5], [1, 4, 0]]


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 5),
        ({"max_sequence_length": 4}, 4),
        ({"max_sequence_length": None}, 5),
        ({"sequence_length": 9}, 9),
    ],
)
def test_the_longest_text_is_of_the_data_unless_limited(options, length):
    assert fitted(feature(**options), "a b c", "a")["max_sequence_length"] == length


def test_words_that_look_special_are_special():
    made = feature(tokenizer="space")
    metadata = fitted(made, "<PAD> a <UNK> <UNK>")
    assert metadata["idx2str"] == [*SPECIAL, "a"]
    assert made.encode(texts("<PAD> a"), metadata).to_pylist() == [[1, 2, 4, 0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["<UNK>"]),
        ({"fill_value": "b new"}, ["b", "new"]),
        ({"fill_value": ""}, []),
        ({"missing_value_strategy": "fill_with_mode"}, ["b", "a"]),
        ({"missing_value_strategy": "drop_row"}, ["<UNK>"]),
        ({"missing_value_strategy": "pad"}, ["<UNK>"]),
    ],
)
def test_what_stands_in_for_a_missing_text(options, words):
    made = feature(**options)
    metadata = fitted(made, None, "b a", None, "b a", "b")
    place = {word: code for code, word in enumerate(metadata["idx2str"])}
    assert made.encode(texts(None), metadata).to_pylist() == [
        [1, *(place[word] for word in words), 0]
    ]


def test_a_fill_is_counted_once_for_each_missing_text():
    metadata = fitted(feature(fill_value="z"), "a a", None, None, None)
    assert metadata["idx2str"][4:] == ["z", "a"]
    assert metadata["max_sequence_length"] == 4


def test_all_missing_is_told():
    with pytest.raises(DataError, match="Column 't' has no value in any row, and a text "):
        fitted(feature(), None, None)


def test_white_space_alone_is_told():
    with pytest.raises(DataError, match=r"Column 't' has no token \(only what"):
        fitted(feature(), "  ", None, "\t")


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.none() | st.text("ab ,é", max_size=8), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=3),
    order=st.randoms(),
    strategy=st.sampled_from(["fill_with_const", "fill_with_mode"]),
)
def test_any_partition_and_order_of_merging_gives_the_same_metadata_and_codes(
    rows, cuts, order, strategy
):
    made = feature(missing_value_strategy=strategy)
    values = texts("a", *rows)
    bounds = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    parts = [values[start:stop] for start, stop in itertools.pairwise(bounds)]
    whole = made.finish(made.partial(values))
    states = [made.partial(part) for part in parts]
    order.shuffle(states)
    while len(states) > 1:
        states.append(made.merge(states.pop(0), states.pop(0)))
    assert made.finish(states[0]) == whole
    by_part = [row for part in parts for row in made.encode(part, whole).to_pylist()]
    assert by_part == made.encode(values, whole).to_pylist()


def test_the_column_is_ragged():
    made = feature()
    assert made.column(fitted(made, "a")) == Column(name="t", dtype="int32", width=None)
    assert made.encode(texts(), fitted(made, "a")).to_pylist() == []


# ------------------------------------------------------------------ options


def test_a_ludwig_config_without_an_encoder_gets_ludwigs_default():
    options = validate(TextInput, {}, "")
    assert options.encoder.type == "parallel_cnn"
    assert (options.encoder.embedding_size, options.encoder.reduce_output) == (256, "sum")
    assert options.preprocessing.tokenizer == "space_punct"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"encoder": {"type": "rnn"}},
            "encoder 'rnn' is known in Ludwig, but not carried out here; what is: parallel_",
        ),
        (
            {"encoder": {"type": "bert"}},
            "encoder 'bert' is not supported, because it needs a pretrained model",
        ),
        (
            {"encoder": {"type": "parallel_cn"}},
            r"encoder\.type: unknown type 'parallel_cn'; did you mean 'parallel_cnn'",
        ),
        (
            {"encoder": {"embeding_size": 3}},
            r"encoder\.embeding_size: unknown option .* did you mean 'embedding_size'",
        ),
        (
            {"encoder": {"norm": "batch"}},
            r"encoder\.norm: known in Ludwig, but not carried out here \(padding would",
        ),
        (
            {"encoder": {"num_fc_layers": 1, "fc_layers": [{}]}},
            "give either fc_layers or num_fc_layers, not both",
        ),
        ({"encoder": {"conv_layers": [{"pool_size": 2}, {}]}}, "need one and the same pool_size"),
        (
            {"encoder": {"reduce_output": None}},
            "'none' is known in Ludwig, but not carried out here; what is: sum",
        ),
        ({"preprocessing": {"tokenizer": "english_tokenize"}}, "needs spaCy, a pretrained model"),
        (
            {"preprocessing": {"tokenizer": "spaces"}},
            r"preprocessing\.tokenizer: .*did you mean 'space'",
        ),
        (
            {"preprocessing": {"vocab_file": "v.txt"}},
            r"preprocessing\.vocab_file: known in Ludwig, but not carried out",
        ),
        ({"tied": "other"}, "tied: known in Ludwig, but not carried out here"),
    ],
)
def test_wrong_options_are_told(values, message):
    with pytest.raises(ConfigError, match=message):
        validate(TextInput, values, "")


# ------------------------------------------------------------------ encoders


ROWS = ([1, 4, 5, 0], [1, 6, 0], [1, 4, 4, 7, 3, 0])


def encoder_of(vocab=8, length=8, padding="right", **options):
    torch.manual_seed(0)
    metadata = {"idx2str": list(range(vocab)), "max_sequence_length": length, "padding": padding}
    return feature(options).network().encoder(metadata).eval()


@pytest.mark.parametrize("how", ["sum", "mean", "avg", "max", "last", "concat"])
def test_embed_reduces_the_vectors_of_a_texts_own_tokens(how):
    encoder = encoder_of(type="embed", embedding_size=3, reduce_output=how)
    out = encoder(ragged(*ROWS))
    reduce = {
        "sum": lambda vectors: vectors.sum(0),
        "mean": lambda vectors: vectors.mean(0),
        "avg": lambda vectors: vectors.mean(0),
        "max": lambda vectors: vectors.amax(0),
        "last": lambda vectors: vectors[-1],
        "concat": lambda vectors: F.pad(vectors, (0, 0, 0, 8 - len(vectors))).flatten(),
    }[how]
    torch.testing.assert_close(
        out, torch.stack([reduce(encoder.table.weight[row]) for row in ROWS])
    )
    assert out.shape[1] == encoder.output_size


def test_sparse_embed_counts_tokens():
    out = encoder_of(type="embed", representation="sparse")(ragged([1, 4, 4], [2]))
    assert out.tolist() == [[0, 1, 0, 0, 2, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]]


def test_parallel_cnn_is_convolutions_side_by_side_summed_over_tokens_then_layers():
    encoder = encoder_of(embedding_size=5, num_filters=4)
    assert [convolution.conv.kernel_size for convolution in encoder.convolutions] == [
        (2,),
        (3,),
        (4,),
        (5,),
    ]
    assert [layer.output_size for layer in encoder.fc_stack.layers] == [512, 256]
    parts = []
    for row in ROWS:
        vectors = encoder.table.weight[row].t()[None]
        parts.append(
            torch.cat(
                [
                    torch.relu(
                        F.conv1d(F.pad(vectors, each.reach), each.conv.weight, each.conv.bias)
                    ).sum(2)
                    for each in encoder.convolutions
                ],
                1,
            )
        )
    torch.testing.assert_close(encoder(ragged(*ROWS)), encoder.fc_stack(torch.cat(parts)))


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("how", ["sum", "mean", "max", "last", "concat"])
@pytest.mark.parametrize(
    "pooling", [{}, {"pool_size": 2}, {"pool_size": 3, "pool_function": "mean"}]
)
def test_a_text_is_encoded_the_same_in_any_batch(how, pooling, padding):
    """Also of pools, whose borders do not move with the longest text of a batch that is padded on
    the left."""
    options = {
        "embedding_size": 5,
        "num_filters": 4,
        "num_fc_layers": 1,
        "output_size": 6,
        "reduce_output": how,
    }
    encoder = encoder_of(padding=padding, **options, **pooling)
    together = encoder(ragged(*ROWS))
    assert together.shape == (3, 6)
    alone = torch.cat([encoder(ragged(row)) for row in ROWS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "how"),
    [*itertools.product(["embed"], ["last", "concat"]), ("parallel_cnn", "sum")],
)
def test_without_gradients_only_some_texts_are_encoded_at_once(kind, how, monkeypatch):
    """4,096 texts of 256 tokens, as predictions have them, would take 11 GB."""
    encoder = encoder_of(type=kind, embedding_size=5, reduce_output=how)
    rows, looked_up = ragged(*ROWS, *ROWS, ROWS[0]), []
    encoder.table.register_forward_hook(lambda *call: looked_up.append(call[2]))
    wanted = encoder(rows).detach()
    assert [len(each) for each in looked_up] == [7]
    of_a_row = 2 * looked_up[0][0].nbytes
    if kind == "parallel_cnn":
        of_a_row = of_a_row // 5 * (5 + 4 * 256)
    monkeypatch.setattr(encoders, "AT_ONCE", 3 * of_a_row)
    looked_up.clear()
    with torch.inference_mode():
        found = encoder(rows)
    assert [len(each) for each in looked_up] == [2, 2, 3]
    torch.testing.assert_close(found, wanted)
    looked_up.clear()
    encoder(rows)  # a gradient would keep every slice
    assert [len(each) for each in looked_up] == [7]


@pytest.mark.parametrize(
    ("kind", "how"), [("embed", "last"), ("parallel_cnn", "sum"), ("parallel_cnn", "concat")]
)
@pytest.mark.parametrize("gradients", [False, True])
def test_one_long_text_does_not_fill_up_all_others(kind, how, gradients, monkeypatch):
    """128 texts beside one of 20,000 tokens were padded to it: 26 GB of vectors."""
    filters = {} if kind == "embed" else {"num_filters": 16}
    encoder = encoder_of(length=256, type=kind, embedding_size=16, reduce_output=how, **filters)
    rows, places = ragged(*[[1, 2, 3]] * 30, [4] * 200, [5]), []
    encoder.table.register_forward_hook(lambda *call: places.append(call[2][..., 0].numel()))
    wanted = encoder(rows)
    wanted.sum().backward()
    gradient = encoder.table.weight.grad.clone()
    width = 16 if kind == "embed" else 16 + 4 * 16
    of_all = 2 * 4 * width * 32 * 256
    monkeypatch.setattr(encoders, "AT_ONCE", of_all // (100 if gradients else 4))
    encoder.zero_grad()
    places.clear()
    with torch.set_grad_enabled(gradients):
        found = encoder(rows)
    if how == "concat":  # which is of all places
        assert sum(places) == 32 * 256
    else:
        assert sum(places) < 0.6 * 32 * 200
    torch.testing.assert_close(found, wanted)
    if gradients:
        found.sum().backward()
        torch.testing.assert_close(encoder.table.weight.grad, gradient)


def test_conv_and_fc_layers_one_by_one():
    encoder = encoder_of(
        conv_layers=[{"filter_size": 7, "num_filters": 3}, {"activation": "tanh"}],
        num_filters=4,
        fc_layers=[{"output_size": 9}, {}],
        output_size=5,
    )
    assert [convolution.output_size for convolution in encoder.convolutions] == [3, 4]
    assert [layer.output_size for layer in encoder.fc_stack.layers] == [9, 5]
    assert encoder(ragged(*ROWS)).shape == (3, 5)


@pytest.mark.parametrize(
    "options", [{"type": "embed", "reduce_output": "max"}, {"type": "parallel_cnn"}]
)
def test_rows_without_tokens_and_no_rows(options):
    encoder = encoder_of(embedding_size=4, **options)
    assert torch.isfinite(encoder(ragged([], [1, 4]))).all()
    assert (
        encoder(Ragged(torch.empty(0, dtype=torch.int32), torch.zeros(1, dtype=torch.int64))).shape[
            0
        ]
        == 0
    )


def test_gradients_reach_every_weight_and_padding_none():
    encoder = encoder_of(embedding_size=4).train()
    encoder(ragged(*ROWS)).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    used = sorted({code for row in ROWS for code in row})
    assert encoder.table.weight.grad.abs().sum(1).nonzero().flatten().tolist() == used


@pytest.mark.parametrize("left", [False, True])
def test_padded_rectangles(left):
    codes, is_token = padded(ragged([1, 2, 3, 4], [5]), 3, left)
    assert codes.tolist() == ([[1, 2, 3], [0, 0, 5]] if left else [[1, 2, 3], [5, 0, 0]])
    assert is_token.tolist() == [[True] * 3, [False, False, True] if left else [True, False, False]]


def test_reductions_ignore_what_is_no_token():
    hidden = torch.tensor([[[1.0], [9.0], [-2.0]]])
    mask = torch.tensor([[True, False, True]])
    got = {how: reduce_sequence(hidden, mask, how).item() for how in ("sum", "mean", "max", "last")}
    assert got == {"sum": -1, "mean": -0.5, "max": 1, "last": -2}


@pytest.mark.parametrize("how", ["sum", "mean", "max", "last", "concat"])
@pytest.mark.parametrize("pool_size", [None, 2])
def test_memory_that_is_used_again_changes_no_bit(how, pool_size):
    """The convolutions' output is changed in place; here it is not."""
    torch.manual_seed(0)
    options = {"reduce_output": how, "pool_size": pool_size}
    encoder = encoder_of(embedding_size=8, num_filters=6, **options)
    column = ragged([4, 5, 6, 7, 4, 5, 6], [], [7], [6, 5, 4, 7, 7, 6])
    found = encoder(column)
    found.square().sum().backward()
    ours = [each.grad.clone() for each in encoder.parameters()]
    encoder.zero_grad()

    def apart(self, hidden, is_token):
        hidden = torch.relu(self.conv(F.pad(hidden.transpose(1, 2), self.reach)))
        if pool_size is not None:
            return self._pooled(hidden, is_token)
        return hidden.transpose(1, 2), is_token

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_encoders.Convolution, "forward", apart)
        real = text_encoders.reduce_sequence
        patch.setattr(text_encoders, "reduce_sequence", lambda *given, own: real(*given))
        expected = encoder(column)
        expected.square().sum().backward()
    assert torch.equal(found, expected)
    for mine, parameter in zip(ours, encoder.parameters(), strict=True):
        assert torch.equal(mine, parameter.grad)


def test_options_objects_need_no_model():
    """The encoder reads attributes, so a third party's options do."""
    from distcore_tabular.text_encoders import embed

    options = SimpleNamespace(
        reduce_output="sum",
        representation="dense",
        embedding_size=2,
        weights_initializer="uniform",
        embeddings_trainable=False,
        dropout=0.0,
    )
    assert embed(8, options, 4)(ragged([1, 2])).shape == (1, 2)


@pytest.mark.parametrize("layer", [{"num_filters": 10**12}, {"filter_size": 10**12}])
def test_convolutions_beyond_the_memory_are_refused_before_torch_is_asked(layer):
    given = {"num_filters": 8, "filter_size": 3, "activation": "relu", "dropout": 0.0}
    pooling = {"pool_function": "max", "pool_size": None}
    with pytest.raises(UserError, match=r"num_filters: .* over 5 numbers each take \d+\.\d TB"):
        Convolution(5, {**given, **pooling, **layer})

"""Options of text and set inputs: Ludwig's names and defaults.

What Ludwig knows and we do not carry out is refused by name, with the reason, unless it is left at
Ludwig's default.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    model_validator,
)

from distcore_tabular.options import SETS, UNKNOWN, InputOptions, NoOutput, OldSpelling
from distcore_tabular.options_network import (
    COMPUTED,
    Activation,
    Dropout,
    FCLayerOptions,
    Initializer,
    Norm,
    NormParams,
    Options,
    refuse,
)
from distcore_tabular.options_parts import only

PADDING, START, STOP = "<PAD>", "<SOS>", "<EOS>"

LANGUAGES = (
    "english italian spanish german french portuguese dutch greek norwegian lithuanian danish "
    "polish romanian "
)
LANGUAGES += "japanese chinese multi"
FOREIGN_TOKENIZERS = (
    *(f"{language}_{what}" for language in LANGUAGES.split() for what in ("tokenize", "lemmatize")),
    *(
        f"{language}_{what}_{how}"
        for language in LANGUAGES.split()
        for what in ("tokenize", "lemmatize")
        for how in ("filter", "remove_stopwords")
    ),
    *("sentencepiece", "clip", "gpt2bpe", "bert", "hf_tokenizer", "ngram", "json"),
)
"""Ludwig's tokenizers that are not carried out here: they need spaCy, a pretrained model, or
more than a split."""

PRETRAINED_ENCODERS = (
    "albert",
    "auto_transformer",
    "bert",
    "camembert",
    "ctrl",
    "deberta",
    "distilbert",
    "electra",
    "flaubert",
    "gpt",
    "gpt2",
    "llm",
    "longformer",
    "modernbert",
    "mt5",
    "roberta",
    "t5",
    "transformer_xl",
    "xlm",
    "xlmroberta",
    "xlnet",
)
SEQUENCE_ENCODERS = (
    "stacked_cnn",
    "stacked_parallel_cnn",
    "rnn",
    "cnnrnn",
    "transformer",
    "mamba",
    "mamba2",
    "jamba",
    "tf_idf",
    "passthrough",
)

TokenizerName = Literal[
    "space", "space_punct", "characters", "underscore", "comma", "untokenized", "stripped"
]
Tokenizer = Annotated[
    TokenizerName,
    refuse(
        FOREIGN_TOKENIZERS,
        ("space", "space_punct", "characters", "underscore", "comma", "untokenized", "stripped"),
        "it needs spaCy, a pretrained model, or more than a split",
    ),
]
MissingValues = Annotated[
    Literal["fill_with_const", "fill_with_mode", "bfill", "ffill", "drop_row"], OldSpelling
]


_PRETRAINED = "pretrained models are not supported"


def _nothing_said(value: Any) -> Any:
    """A section of nulls and zeros alone, as Ludwig writes out what nobody set, is None."""
    if isinstance(value, dict) and not any(_nothing_said(each) for each in value.values()):
        return None
    return value


class TextPreprocessing(Options):
    """`preprocessing` of a text input."""

    tokenizer: Tokenizer = Field("space_punct", description="How a text is taken apart.")
    lowercase: bool = Field(False, description="Lower the text first.")
    most_common: int = Field(
        20000, ge=1, description="Words of the vocabulary at most; others become <UNK>."
    )
    max_sequence_length: int | None = Field(
        256,
        ge=1,
        description="Tokens of a text at most, with <SOS> and <EOS>; what is behind is cut. null: "
        "no limit.",
    )
    sequence_length: int | None = Field(
        None, ge=1, description="The same, and also if the data are shorter."
    )
    missing_value_strategy: MissingValues = Field(
        "fill_with_const", description=f"What stands in for a missing text. {SETS}"
    )
    fill_value: str = Field(
        UNKNOWN, description="The text for fill_with_const; <UNK>: the one token <UNK>."
    )
    padding: Literal["left", "right"] = Field(
        "right", description="Where short texts are filled up."
    )
    padding_symbol: str = Field(PADDING, description="The vocabulary's word for no token.")
    unknown_symbol: str = Field(
        UNKNOWN, description="The vocabulary's word for a token that is not in it."
    )
    pretrained_model_name_or_path: Annotated[str | None, only(None, _PRETRAINED)] = None
    vocab_file: Annotated[str | None, only(None, "the vocabulary is always made from the data")] = (
        None
    )
    computed_fill_value: Any = Field(
        UNKNOWN, description="Found from the data; what is given is not read."
    )
    ngram_size: Annotated[int, only(2, "there is no ngram tokenizer")] = 2
    cache_encoder_embeddings: Annotated[bool, only(False, _PRETRAINED)] = False
    compute_idf: Annotated[bool, only(False, "there is no tf_idf encoder")] = False
    prompt: Annotated[
        dict[str, Any] | None,
        BeforeValidator(_nothing_said),
        only(None, "language models are not supported"),
    ] = None


class SetPreprocessing(Options):
    """`preprocessing` of a set input."""

    tokenizer: Tokenizer = Field("space", description="How a text is taken apart into members.")
    lowercase: bool = Field(False, description="Lower the text first.")
    most_common: int | None = Field(
        10000, ge=1, description="Members at most; others become <UNK>. null: no limit."
    )
    missing_value_strategy: MissingValues = Field(
        "fill_with_const", description=f"What stands in for a missing set. {SETS}"
    )
    fill_value: str = Field(
        UNKNOWN, description="The text for fill_with_const; <UNK>: the one member <UNK>."
    )
    computed_fill_value: Any = Field(
        UNKNOWN, description="Found from the data; what is given is not read."
    )


class EmbeddingOptions(Options):
    """What the encoders of tokens have in common."""

    representation: Literal["dense", "sparse"] = Field(
        "dense", description="Learned vectors, or one-hot."
    )
    embedding_size: int = Field(
        256, ge=1, description="Size of a token's vector, at most the vocabulary's."
    )
    embeddings_trainable: bool = Field(True, description="Whether the vectors are learned.")
    dropout: Dropout = Field(0.0, description="Probability of dropping a value.")
    vocab: Any = Field(None, description=COMPUTED)
    skip: Annotated[bool, only(False, "every encoder is used")] = False
    adapter: Annotated[dict[str, Any] | None, only(None, _PRETRAINED)] = None
    pretrained_embeddings: Annotated[str | None, only(None, _PRETRAINED)] = None
    embeddings_on_cpu: Annotated[bool, only(False, "embeddings lie where the model lies")] = False


Reduction = Annotated[
    Literal["sum", "mean", "avg", "max", "last", "concat"],
    refuse(
        ("attention", "attention_pooling", "none", "None"),
        ("sum", "mean", "avg", "max", "last", "concat"),
    ),
    BeforeValidator(lambda value: "none" if value is None else value),
]


class TextEmbed(EmbeddingOptions):
    """Encoder `embed`: the tokens' vectors, reduced to one."""

    type: Literal["embed"] = "embed"
    weights_initializer: Initializer = Field("uniform", description="Of the tokens' vectors.")
    reduce_output: Reduction = Field(
        "sum", description="How the tokens' vectors become one; padding does not count."
    )
    max_sequence_length: Any = Field(None, description=COMPUTED)


class ConvLayer(Options):
    """One entry of `conv_layers`; what is not given is as for the whole encoder."""

    num_filters: int = Field(256, ge=1)
    filter_size: int = Field(3, ge=1)
    activation: Activation = "relu"
    dropout: Dropout = 0.0
    pool_function: Literal["max", "average", "avg", "mean"] = "max"
    pool_size: int | None = Field(None, ge=1)


class ParallelCNN(EmbeddingOptions):
    """Encoder `parallel_cnn`, Ludwig's default for text: convolutions of several widths side by
    side, reduced."""

    type: Literal["parallel_cnn"] = "parallel_cnn"
    representation: Annotated[
        Literal["dense", "sparse"],
        only("dense", "one-hot vectors of a whole vocabulary do not go into convolutions here"),
    ] = "dense"
    conv_layers: list[ConvLayer] | None = Field(
        None, min_length=1, description="The convolutions one by one; default: widths 2 to 5."
    )
    num_conv_layers: int | None = Field(
        None, ge=1, description="How many convolutions of filter_size, instead."
    )
    num_filters: int = Field(256, ge=1, description="Output channels of a convolution.")
    filter_size: int = Field(
        3,
        ge=1,
        description="Tokens that a convolution sees at once, if num_conv_layers is given, or "
        "conv_layers that do not say it; the default's see 2 to 5 whatever it is.",
    )
    pool_function: Literal["max", "average", "avg", "mean"] = Field(
        "max", description="How neighbours are pooled."
    )
    pool_size: int | None = Field(
        None, ge=1, description="How many positions are pooled; null: none."
    )
    reduce_output: Reduction = Field(
        "sum", description="How positions become one vector; padding does not count."
    )
    fc_layers: list[FCLayerOptions] | None = Field(
        None, description="Layers behind; default: sizes 512 and 256."
    )
    num_fc_layers: int | None = Field(
        None, ge=1, description="How many layers of output_size, instead."
    )
    output_size: int = Field(
        256,
        ge=1,
        description="Output size of a fully connected layer, if num_fc_layers is given, or "
        "fc_layers that do not say it; the default's have 512 and 256 whatever it is.",
    )
    use_bias: bool = Field(True, description="Whether the layers have a bias.")
    weights_initializer: Initializer = Field(
        "xavier_uniform", description="Of the tokens' vectors and the layers."
    )
    bias_initializer: Initializer = Field("zeros", description="Of the fully connected layers.")
    activation: Activation = Field("relu", description="Activation of each layer.")
    norm: Annotated[
        Norm,
        only(
            None,
            "padding would count in a norm over positions; give it to fc_layers or to the combiner",
        ),
    ] = None
    norm_params: Annotated[dict[str, Any] | None, only(None, "there is no norm")] = None
    max_sequence_length: Any = Field(None, description=COMPUTED)
    should_embed: Annotated[bool, only(True, "tokens are always embedded")] = True

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        for given, number in (("conv_layers", "num_conv_layers"), ("fc_layers", "num_fc_layers")):
            if getattr(self, given) is not None and getattr(self, number) is not None:
                raise ValueError(f"give either {given} or {number}, not both")
        layers = [each.model_dump(exclude_unset=True) for each in self.conv_layers or []]
        if len({each.get("pool_size", self.pool_size) for each in layers}) > 1:
            raise ValueError(
                "conv_layers lie side by side, so they need one and the same pool_size"
            )
        return self


class SetEmbed(EmbeddingOptions):
    """Encoder `embed` of sets: the sum of the members' vectors, then fully connected layers."""

    type: Literal["embed"] = "embed"
    embedding_size: int = Field(
        50, ge=1, description="Size of a member's vector, at most the vocabulary's."
    )
    fc_layers: list[FCLayerOptions] | None = Field(
        None, description="The layers one by one, each with what differs."
    )
    num_fc_layers: int = Field(
        0,
        ge=0,
        description="Fully connected layers, if `fc_layers` is not given; of none, "
        "output_size is not read.",
    )
    output_size: int = Field(10, ge=1, description="Output size of a fully connected layer.")
    use_bias: bool = Field(True, description="Whether layers have a bias.")
    weights_initializer: Initializer = Field(
        "xavier_uniform", description="Of the members' vectors and the layers."
    )
    bias_initializer: Initializer = Field("zeros", description="Of the layers.")
    norm: Norm = Field(
        None, description="batch (over a worker's own rows) or layer; also of the layers' input."
    )
    norm_params: NormParams = Field(
        None, description="Arguments of torch's BatchNorm1d or LayerNorm."
    )
    activation: Activation = Field("relu", description="Activation of each layer; null: none.")


def _of_type(default: str, carried_out: tuple[str, ...]) -> BeforeValidator:
    """Fill in the encoder's default type; tell Ludwig's other encoders from mistyped ones. A
    bare name is a type."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            value = {"type": value}
        if value is None:
            value = {}
        if not isinstance(value, dict):
            return value
        kind = value.get("type", default)
        what = f"what is: {', '.join(carried_out)}"
        if kind in PRETRAINED_ENCODERS:
            raise ValueError(
                f"encoder {kind!r} is not supported, because it needs a pretrained model; {what}"
            )
        if kind in SEQUENCE_ENCODERS and kind not in carried_out:
            raise ValueError(
                f"encoder {kind!r} is known in Ludwig, but not carried out here; {what}"
            )
        return {"type": default, **value}

    return BeforeValidator(check)


TextEncoder = Annotated[
    Annotated[TextEmbed | ParallelCNN, Field(discriminator="type")],
    _of_type("parallel_cnn", ("parallel_cnn", "embed")),
]
SetEncoder = Annotated[SetEmbed, _of_type("embed", ("embed",))]


class TextInput(InputOptions):
    """A text input."""

    preprocessing: TextPreprocessing = TextPreprocessing.model_construct()
    encoder: TextEncoder = ParallelCNN.model_construct()


class SetInput(InputOptions):
    """A set input."""

    preprocessing: SetPreprocessing = SetPreprocessing.model_construct()
    encoder: SetEncoder = SetEmbed.model_construct()


class NoTextOutput(NoOutput):
    """A text or set output."""

    why = (
        "text and set outputs are known in Ludwig, but not carried out here; outputs are number, "
        "binary, category"
    )


MODELS: dict[tuple[str, str, str], type[BaseModel]] = {
    ("features", "text", "input"): TextInput,
    ("features", "set", "input"): SetInput,
    ("features", "text", "output"): NoTextOutput,
    ("features", "set", "output"): NoTextOutput,
}

"""The table of every options model of this plugin."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, create_model

from distcore_core.contracts import Role
from distcore_core.registry.manager import Plugins
from distcore_data.base_options import Options
from distcore_data.members import with_members
from distcore_tabular import options, options_network
from distcore_tabular import options_parts as parts
from distcore_tabular.feature import METRICS, metric_name
from distcore_tabular.roles import COMBINER, DECODER, ENCODER, LOSS, METRIC, TOKENIZER


class Section(NamedTuple):
    """A part of a feature's or a model's options that names a member.

    builtin: names that the options know themselves."""

    field: str
    role: Role[Any]
    builtin: Mapping[str, type[BaseModel]]
    shared: type[BaseModel]


Table = Mapping[str, type[BaseModel]]
PASSTHROUGH: Table = {"passthrough": parts.PassthroughOptions}
DENSE: Table = {**PASSTHROUGH, "dense": parts.DenseOptions}
CATEGORY_ENCODERS: Table = {
    **PASSTHROUGH,
    "dense": parts.CategoryDenseOptions,
    "sparse": parts.CategorySparseOptions,
    "onehot": parts.OneHotOptions,
}
NUMBER_LOSSES: Table = {
    **dict.fromkeys(parts.NUMBER_LOSSES, parts.NumberLossOptions),
    "huber": parts.HuberOptions,
}
BINARY_LOSSES: Table = {
    "binary_weighted_cross_entropy": parts.BinaryLossOptions,
    "focal": parts.FocalOptions,
}
CATEGORY_LOSSES: Table = {
    "softmax_cross_entropy": parts.CategoryLossOptions,
    "focal": parts.FocalOptions,
    "poly": parts.PolyOptions,
}
COMBINERS: Table = {"concat": options_network.ConcatOptions}


def _encoder(builtin: Table) -> tuple[Section, ...]:
    return (Section("encoder", ENCODER, builtin, parts.EncoderOptions),)


def _output(decoders: Table, losses: Table) -> tuple[Section, ...]:
    loss = Section("loss", LOSS, losses, parts.LossOptions)
    return (Section("decoder", DECODER, decoders, parts.OwnDecoderOptions), loss)


SECTIONS: Mapping[tuple[str, str], tuple[Section, ...]] = {
    ("tabular", ""): (Section("combiner", COMBINER, COMBINERS, Options),),
    ("number", "input"): _encoder({**DENSE, "ple": parts.PleOptions}),
    ("binary", "input"): _encoder(DENSE),
    ("category", "input"): _encoder(CATEGORY_ENCODERS),
    ("number", "output"): _output({"regressor": parts.RegressorOptions}, NUMBER_LOSSES),
    ("binary", "output"): _output({"regressor": parts.RegressorOptions}, BINARY_LOSSES),
    ("category", "output"): _output({"classifier": parts.ClassifierOptions}, CATEGORY_LOSSES),
}
"""Those of tables; `sections_of` has all."""


def sections_of(name: str, role: str) -> tuple[Section, ...]:
    """The parts of a feature's options, or of the model's (role ""), that name a member.

    The options of texts, sets and dates are imported when such a feature is asked for: making
    their models takes a sixth of what all models take."""
    if name in ("text", "set") and role == "input":
        from distcore_tabular.options_text import ParallelCNN, SetEmbed, TextEmbed

        text: Table = {"embed": TextEmbed, "parallel_cnn": ParallelCNN}
        return _encoder(text if name == "text" else {"embed": SetEmbed})
    if name == "date" and role == "input":
        from distcore_tabular.options_date import DateEmbedOptions, DateWaveOptions

        return _encoder({"embed": DateEmbedOptions, "wave": DateWaveOptions})
    return SECTIONS.get((name, role), ())


def prefix_of(name: str, role: str) -> str:
    """What the names of members have before those in the config: of a feature, which has a role,
    its type."""
    return f"{name}." if role else ""


@cache
def _models_of(name: str) -> Mapping[tuple[str, str, str], type[BaseModel]]:
    """The models of a feature type and its members; of the models and theirs by any other name."""
    if name in ("text", "set"):
        from distcore_tabular.options_text import MODELS
    elif name == "date":
        from distcore_tabular.options_date import MODELS
    else:
        MODELS = {**options.MODELS, **options_network.MODELS}
    members = {
        (section.role.kind, prefix_of(each, role) + member, ""): model
        for each, role in ((name, "input"), (name, "output"), ("tabular", ""))
        for section in sections_of(each, role)
        for member, model in section.builtin.items()
    }
    return {**MODELS, **members}


def model_of(kind: str, name: str, role: str = "") -> type[BaseModel] | None:
    """The options model of what this plugin offers; role "input" or "output" for features."""
    return _models_of(name.partition(".")[0]).get((kind, name, role))


def with_members_of(
    model: type[BaseModel], name: str, role: str, given: Any, plugins: Plugins
) -> type[BaseModel]:
    """The options of a feature, whose encoder, decoder and loss may be of other plugins; or of the
    model `tabular`, whose combiner may be."""
    for each in sections_of(name, role):
        known, prefix = each.builtin, prefix_of(name, role)
        model = with_members(
            model,
            each.field,
            given,
            each.role,
            plugins,
            builtin=known,
            shared=each.shared,
            prefix=prefix,
        )
    if (name, role) in (("text", "input"), ("set", "input")):
        model = _with_tokenizers(model, given, plugins)
    if role == "output" and name in METRICS and isinstance(given, Mapping) and given.get("metrics"):
        model = _with_metrics(model, given["metrics"], name, plugins)
    return model


def _with_tokenizers(model: type[BaseModel], given: Any, plugins: Plugins) -> type[BaseModel]:
    """The options, whose `preprocessing.tokenizer` may be of another plugin."""
    from distcore_tabular.options_text import TokenizerName

    inside = (
        None
        if given is None
        else given.get("preprocessing", {})
        if isinstance(given, Mapping)
        else {}
    )
    info = model.model_fields["preprocessing"]
    known: Any = info.annotation
    changed = with_members(
        known,
        "tokenizer",
        inside if given is None or inside is not None else {},
        TOKENIZER,
        plugins,
        builtin=get_args(TokenizerName),
        shared=Options,
    )
    if changed is known:
        return model
    fields: dict[str, Any] = {"preprocessing": (changed, changed.model_validate({}))}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def _with_metrics(
    model: type[BaseModel], given: Any, type_: str, plugins: Plugins
) -> type[BaseModel]:
    """The options, whose metrics are names of those that are installed, or sections of those
    from outside."""
    builtin, prefix = METRICS[type_], prefix_of(type_, "output")
    installed = [name for name in plugins.names(METRIC.kind) if name.startswith(prefix)]
    known: Any = Literal[tuple(name.removeprefix(prefix) for name in installed)]
    sections: dict[str, Any] = {}
    for each in given if isinstance(given, list) else []:
        holder = create_model("Metric", metric=(known, ...))
        changed = with_members(
            holder,
            "metric",
            {"metric": each},
            METRIC,
            plugins,
            builtin=builtin,
            shared=Options,
            prefix=prefix,
        )
        if (
            isinstance(each, Mapping)
            and prefix + str(each.get("type")) in installed
            and changed is not holder
        ):
            sections[each["type"]] = changed.model_fields["metric"].annotation
    info = model.model_fields["metrics"]
    names: Any = Annotated[list[_metric(known, sections)], AfterValidator(_each_once)]  # type: ignore[misc]
    fields: dict[str, Any] = {"metrics": (names, Field([], description=info.description))}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def _metric(known: Any, sections: Mapping[str, Any]) -> Any:
    """A name, or the section of its type."""
    if not sections:
        return known

    def branch(value: Any) -> str:
        name = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        return name if isinstance(name, str) and name in sections else "a name"

    branches = tuple(
        Annotated[each, Tag(name)] for name, each in {"a name": known, **sections}.items()
    )
    return Annotated[Union[branches], Discriminator(branch)]  # noqa: UP007


def _each_once(metrics: list[Any]) -> list[Any]:
    names = [metric_name(each) for each in metrics]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(
            f"the metric {twice!r} is named twice; scores have one value of each, so keep one"
        )
    return metrics

"""An encoder, a decoder, a loss, a metric and a combiner from outside, in the features of the
tabular model."""

import json
from functools import partial

import pytest
from tests.distributions import distribution

PLUGIN = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_options_model(kind, name):
    import distcore_waves_parts as parts

    known = {
        "number.waves": parts.WavesOptions,
        "number.log_cosh": parts.LogCoshOptions,
        "gated": parts.GatedOptions,
        "number.bias": parts.BiasOptions,
    }
    return known.get(name)

@hookimpl
def distcore_make_member(kind, name, options, context):
    import distcore_waves_network as network

    if (kind, name) == ("tabular.encoders", "number.waves"):
        return network.Waves(options)
    if (kind, name) == ("tabular.losses", "number.log_cosh"):
        return network.LogCosh(options)
    if (kind, name) == ("tabular.decoders", "number.mean"):
        return network.Mean(context["input_size"])
    if (kind, name) == ("tabular.metrics", "number.bias"):
        return network.bias(options)
    if (kind, name) == ("tabular.combiners", "gated"):
        return network.Gated(options, **context)
"""

PARTS = '''
from pydantic import BaseModel, ConfigDict, Field

class WavesOptions(BaseModel):
    """Sines of several frequencies."""
    model_config = ConfigDict(extra="forbid")
    frequencies: int = Field(4, ge=1, description="How many frequencies there are.")

class LogCoshOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    scale: float = Field(1.0, gt=0, description="Errors are divided by it.")

class BiasOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    times: float = Field(1.0, gt=0, description="What the bias is multiplied by.")

class GatedOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int = Field(8, ge=1, description="Columns that the gate lets through.")
'''

NETWORK = """
import torch
from torch import nn

class Waves(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.output_size = options.frequencies
        self.phases = nn.Parameter(torch.zeros(options.frequencies))

    def forward(self, value):
        return torch.sin(value.reshape(-1, 1) * torch.arange(1, self.output_size + 1) + self.phases)

class Mean(nn.Module):
    def __init__(self, input_size):
        super().__init__()
        self.linear = nn.Linear(input_size, 3)

    def forward(self, hidden):
        return self.linear(hidden).mean(-1)

class Gated(nn.Module):
    def __init__(self, options, input_size, sizes):
        super().__init__()
        assert sum(sizes.values()) == input_size, (sizes, input_size)
        self.output_size, self.sizes = options.width, tuple(sizes.values())
        self.gates = nn.Parameter(torch.zeros(len(sizes)))
        self.linear = nn.Linear(input_size, options.width)

    def forward(self, columns):
        parts = columns.split(self.sizes, 1)
        opened = [part * gate.sigmoid() for part, gate in zip(parts, self.gates)]
        return self.linear(torch.cat(opened, 1))

def bias(options):
    import torchmetrics

    class Bias(torchmetrics.Metric):
        full_state_update, higher_is_better = False, False

        def __init__(self):
            super().__init__()
            self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state("rows", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

        def update(self, output, target):
            self.total += (output.double() - target.double()).sum()
            self.rows += len(target)

        def compute(self):
            return options.times * self.total / self.rows

    return Bias()

class LogCosh:
    def __init__(self, options):
        self.options = options

    def __call__(self, logits, target, metadata):
        return torch.log(torch.cosh((logits.float() - target.float()) / self.options.scale))
"""

CONFIG = """\
input_features:
  - name: age
    type: number
    encoder: {type: waves, frequencies: 6}
  - {name: height, type: number}
output_features:
  - name: amount
    type: number
    decoder: mean
    metrics: [bias]
    loss: {type: log_cosh, scale: 2, weight: 0.5}
combiner: {type: gated, width: 5}
trainer: {epochs: 2, batch_size: 32}
backend: local
"""

ENTRIES = {
    "encoders": "number.waves",
    "losses": "number.log_cosh",
    "decoders": "number.mean",
    "combiners": "gated",
    "metrics": "number.bias",
}


@pytest.fixture
def run(place, tmp_path):
    """The command line beside a distribution that offers an encoder, a loss, a decoder and a
    combiner."""
    install(tmp_path / "site", "distcore-waves", ENTRIES)
    (tmp_path / "site" / "distcore_waves_parts.py").write_text(PARTS)
    (tmp_path / "site" / "distcore_waves_network.py").write_text(NETWORK)
    place.write(
        "data.csv",
        "age,height,amount\n"
        + "".join(f"{n % 40},{n % 9},{(n * 7) % 40 / 3}\n" for n in range(300)),
    )
    place.write("config.yaml", CONFIG)

    return partial(place.beside, tmp_path / "site")


def install(site, name, entries):
    offers = {f"tabular.{kind}": [entry] for kind, entry in entries.items()}
    distribution(site, name, PLUGIN, offers=offers)


@pytest.mark.system
def test_they_are_trained_saved_loaded_and_predict(place, run):
    run(*place.words("experiment"))
    config = json.loads((place.results / "description.json").read_text())["config"]
    assert config["input_features"][0]["encoder"] == {"type": "waves", "frequencies": 6}
    run(*place.words("evaluate", "--model_path", place.results))
    predictions = run(*place.words("predict", "--model_path", place.results, "--overwrite"))
    assert "bias" not in predictions
    scores = json.loads((place.results / "test_statistics.json").read_text())["amount"]
    assert isinstance(scores["bias"], float)
    assert {"loss", "mean_squared_error", "r2"} < scores.keys()
    weights = (place.results / "model" / "weights.safetensors").read_bytes()[:4096]
    assert b"phases" in weights
    assert b"combiner.gates" in weights
    rows = json.loads(run("plugins", "--json"))
    listed = {
        (row["role"], row["name"], row["state"])
        for row in rows
        if row["distribution"] == "distcore-waves"
    }
    assert listed == {(f"tabular.{kind}", entry, "ok") for kind, entry in ENTRIES.items()}


def test_a_model_tells_of_whose_members_are_gone_or_of_another_release(place, run, tmp_path):
    """Another release may compute otherwise by the same weights, and nothing said so."""
    run(*place.words("train"))
    words = place.words("predict", "--model_path", place.results, "--overwrite")
    assert "was trained with" not in run(*words)
    info = tmp_path / "site" / "distcore_waves-1.0.dist-info"
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(metadata.replace("Version: 1.0", "Version: 2.0"))
    said = run(*words)
    for what in ("encoder 'number.waves'", "decoder 'number.mean'", "combiner 'gated'"):
        assert (
            f"The model was trained with {what} of distcore-waves 1.0; distcore-waves 2.0" in said
        )
    assert "log_cosh" not in said
    (info / "entry_points.txt").write_text("")
    told = run(*words, code=2)
    assert "of distcore-waves 1.0, which is not installed here." in told
    assert "Install distcore-waves==1.0." in told


@pytest.mark.system
def test_plan_and_results_name_who_offers_them(place, run):
    planned = json.loads(run("plan", "--config", place.config, "--dataset", place.data, "--json"))
    outside = {(f"tabular.{kind}", entry) for kind, entry in ENTRIES.items()}
    assert outside == {
        (each["role"], each["name"])
        for each in planned["plugins"]
        if each["role"].startswith("tabular.")
    }
    run(*place.words("train"))
    description = json.loads((place.results / "description.json").read_text())
    model = json.loads((place.results / "model" / "model.json").read_text())
    assert model["plugins"] == description["plugins"]
    of_waves = [each for each in model["plugins"] if each["distribution"] == "distcore-waves"]
    assert {(each["kind"], each["name"]) for each in of_waves} == outside
    assert {each["version"] for each in of_waves} == {"1.0"}


@pytest.mark.system
def test_a_metric_takes_options(place, run):
    run(*place.words("experiment"))
    plain = json.loads((place.results / "test_statistics.json").read_text())["amount"]["bias"]
    place.write("config.yaml", CONFIG.replace("[bias]", "[{type: bias, times: 3}]"))
    run(*place.words("experiment", "--experiment_name", "threefold"))
    folder = place.folder / "results" / "threefold_run"
    assert json.loads((folder / "test_statistics.json").read_text())["amount"][
        "bias"
    ] == pytest.approx(3 * plain)
    config = json.loads((folder / "description.json").read_text())["config"]
    assert config["output_features"][0]["metrics"] == [{"type": "bias", "times": 3.0}]
    run(*place.words("evaluate", "--model_path", folder))


def test_their_options_are_in_the_schema(run):
    schema = run("schema")
    assert "How many frequencies there are." in schema
    assert "Errors are divided by it." in schema
    assert "Columns that the gate lets through." in schema


def test_one_that_is_broken_is_left_out_of_the_schema_with_a_note(run, distribution, tmp_path):
    raising = "raise ImportError('no libfoo')"
    distribution(tmp_path / "site", "bad-one", raising, kind="tabular.encoders", entry="number.bad")
    schema = json.loads(run("schema"))
    assert "tabular.encoders number.bad (bad-one 1.0)" in schema["$comment"]
    assert "no libfoo" in schema["$comment"]
    assert "How many frequencies there are." in json.dumps(schema)


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        (
            "frequencies: 6",
            "frequenzies: 6",
            4,
            "unknown option 'frequenzies'; did you mean 'frequencies'?",
        ),
        ("frequencies: 6", "frequencies: 0", 4, "should be greater than or equal to 1"),
        ("[bias]", "[bias, byas]", 10, "metrics[1]: should be"),
        (
            "[bias]",
            "[{type: bias, tymes: 3}]",
            10,
            "metrics[0].tymes: unknown option 'tymes'; did you mean 'times'?",
        ),
        ("[bias]", "[bias, {type: bias}]", 10, "the metric 'bias' is named twice"),
        ("scale: 2", "scale: much", 11, "scale: should be a number"),
        ("width: 5", "with: 5", 12, "combiner.with: unknown option 'with'; did you mean 'width'?"),
        ("weight: 0.5", "weight: -1", 11, "weight: should be greater than or equal to 0"),
        ("type: waves", "type: weaves", 4, "unknown type 'weaves'; did you mean 'waves'?"),
        (
            "type: waves",
            "type: fourier",
            4,
            "unknown type 'fourier'; known: dense, passthrough, ple, waves",
        ),
        (
            "type: gated",
            "type: gate",
            12,
            "combiner.type: unknown type 'gate'; did you mean 'gated'?",
        ),
    ],
)
def test_a_mistake_in_them_is_told_by_its_line(place, run, right, wrong, line, said):
    place.write("config.yaml", CONFIG.replace(right, wrong))
    told = run(*place.words("train"), code=2)
    assert said in told
    assert f"line {line}:" in told


def test_a_member_that_shadows_a_built_in_one_is_refused_by_both_names(place, run, tmp_path):
    install(tmp_path / "site", "odd-dense", {"encoders": "number.dense"})
    place.write("config.yaml", CONFIG.replace("{type: waves, frequencies: 6}", "dense"))
    said = run(*place.words("train"), code=1)
    assert "Two distributions offer encoder 'number.dense': distcore-tabular" in said
    assert "odd-dense 1.0" in said
    place.write("config.yaml", CONFIG + "plugins: {block: [odd-dense]}\n")
    run(*place.words("train"))


def test_another_metric_reads_the_same_cache(place, run):
    run(*place.words("preprocess"))
    caches = set(place.folder.rglob("manifest.json"))
    assert caches
    place.write("config.yaml", CONFIG.replace("    metrics: [bias]\n", ""))
    run(*place.words("preprocess"))
    assert set(place.folder.rglob("manifest.json")) == caches
    place.write(
        "config.yaml",
        CONFIG.replace("type: number}", "type: number, preprocessing: {normalization: minmax}}"),
    )
    run(*place.words("preprocess"))
    assert set(place.folder.rglob("manifest.json")) > caches

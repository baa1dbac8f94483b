"""The network that the features declare: the same numbers as by hand, saved by feature, seeded."""

import copy
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import nn

from distcore_core.config.issues import validate
from distcore_core.contracts import FEATURE, Column
from distcore_core.errors import ConfigError, PluginBroken
from distcore_core.registry.manager import Plugins
from distcore_tabular import encoders
from distcore_tabular.layers import fc_stack
from distcore_tabular.network import Inputs, TabularModel, module_key
from distcore_tabular.options_network import TabularOptions
from distcore_torch.batch import Batch, Layout
from distcore_torch.packing import pack


@dataclass
class Plain:
    """A feature and its network in one: an encoder for an input, a linear decoder for an output."""

    name: str
    make: Any = None
    options: Any = field(default_factory=SimpleNamespace)

    def network(self):
        return self

    def encoder(self, metadata):
        return self.make()

    def decoder(self, metadata, input_size):
        return nn.Linear(input_size, metadata["classes"])


class Sized(nn.Module):
    """An encoder that says of itself that it gives `size` columns, and gives something else."""

    def __init__(self, size, gives):
        super().__init__()
        self.output_size, self.gives = size, gives

    def forward(self, value):
        return self.gives(value)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: None, "its `encoder` is None, and no torch.nn.Module"),
        (nn.Identity, "the `output_size` of its encoder is None, and not how many columns"),
        (lambda: Sized("2", None), "the `output_size` of its encoder is '2', and not"),
        (
            lambda: Sized(3, lambda value: value),
            "gave torch.float32 (4,), and not torch.float32 (4, 3)",
        ),
        (lambda: Sized(1, lambda value: None), "its encoder gave None, and not"),
        (lambda: Sized(1, lambda value: value[:1, None]), "gave torch.float32 (1, 1), and not"),
        (lambda: Sized(1, lambda value: value[:, None].double()), "gave torch.float64 (4, 1), and"),
    ],
)
def test_an_encoder_that_is_none_is_told_with_its_feature(make, fault):
    column = Column(name="x", dtype="float32")
    features = SimpleNamespace(
        inputs=[Plain("x", make)],
        outputs=[Plain("y")],
        metadata={"x": {}, "y": {"classes": 2}},
        columns={"x": column},
    )
    model = TabularModel(validate(TabularOptions, {}, where="model"))
    batch = pack(pa.record_batch({"x": pa.array([1, 2, 3, 4], "float32")}), Layout.of([column]))
    with pytest.raises(PluginBroken) as told:
        model.build(features)(batch)
    assert f"{Plain.__module__}.Plain of 'x': " in str(told.value)
    assert fault in str(told.value)


def test_a_feature_whose_network_is_none_is_told():
    class Without(Plain):
        def network(self):
            return None

    features = SimpleNamespace(inputs=[Without("x")], outputs=[], metadata={"x": {}})
    model = TabularModel(validate(TabularOptions, {}, where="model"))
    with pytest.raises(PluginBroken, match="Without of 'x': its `network\\(\\)` is None"):
        model.build(features)


def test_a_decoder_that_is_none_is_told_with_its_feature():
    class Without(Plain):
        def decoder(self, metadata, input_size):
            return None

    column = Column(name="x", dtype="float32")
    features = SimpleNamespace(
        inputs=[Plain("x", encoders.Passthrough)],
        outputs=[Without("y")],
        metadata={"x": {}, "y": {"classes": 2}},
        columns={"x": column},
    )
    model = TabularModel(validate(TabularOptions, {}, where="model"))
    with pytest.raises(PluginBroken, match="Without of 'y': its `decoder` is None, and no torch"):
        model.build(features)


def number(name):
    return Plain(name, encoders.Passthrough), Column(name=name, dtype="float32")


def category(name, classes, size=4, dropout=0.0, trainable=True):
    options = SimpleNamespace(
        embedding_size=size,
        embedding_initializer=None,
        embeddings_trainable=trainable,
        dropout=dropout,
    )
    return Plain(name, lambda: encoders.category_embed(classes, options)), Column(
        name=name, dtype="int32"
    )


def feature_set(inputs, outputs=(("y", 1),)):
    made = [Plain(name) for name, _ in outputs]
    columns = {feature.name: column for feature, column in inputs}
    return SimpleNamespace(
        inputs=[feature for feature, _ in inputs],
        outputs=made,
        metadata={
            **{name: {} for name in columns},
            **{name: {"classes": classes} for name, classes in outputs},
        },
        columns={**columns, **{name: Column(name=name, dtype="int32") for name, _ in outputs}},
    )


def batch_of(features, rows=8, seed=0):
    """A packed batch: floats from a normal distribution, codes below 3."""
    generator = torch.Generator().manual_seed(seed)
    layout = Layout.of(features.columns.values())
    packed = torch.empty(rows, layout.words, dtype=torch.int32)
    for slot in layout.slots.values():
        if slot.dtype == torch.float32:
            values = torch.randn(rows, slot.width, generator=generator).view(torch.int32)
        else:
            values = torch.randint(0, 3, (rows, slot.width), generator=generator, dtype=torch.int32)
        packed[:, slot.start : slot.start + slot.width] = values
    return Batch(packed, layout)


def build(features, seed=0, **combiner):
    torch.manual_seed(seed)
    return TabularModel(validate(TabularOptions, {"combiner": combiner}, "model")).build(features)


@pytest.fixture
def mixed():
    """Numbers and categories of two sizes, interleaved."""
    inputs = [
        number("a"),
        category("c1", 9),
        number("b.x"),
        category("c2", 7),
        category("wide", 9, 6),
        number("keys"),
    ]
    return feature_set(inputs, (("y", 1), ("z", 3)))


def test_forward_is_encoders_side_by_side_then_layers_then_decoders(mixed):
    net, batch = build(mixed, num_fc_layers=2, output_size=5), batch_of(mixed)
    state = net.state_dict()
    looked_up = {
        name: state[f"encoders.feature_{name}.weight"][batch[name].long()]
        for name in ("c1", "c2", "wide")
    }
    numbers = torch.stack([batch["a"], batch["b.x"], batch["keys"]], 1)
    hidden = torch.cat([numbers, looked_up["c1"], looked_up["c2"], looked_up["wide"]], 1)
    for layer in net.combiner.layers:
        hidden = torch.relu(layer.linear(hidden))
    out = net(batch)
    assert list(out) == ["y", "z"]
    for name, logits in out.items():
        torch.testing.assert_close(logits, net.decoders[module_key(name)](hidden))


def test_weights_are_saved_by_feature_whatever_shares_a_table(mixed):
    net = build(mixed)
    assert len(net.encoders.shared) == 1
    assert sorted(net.state_dict()) == [
        "decoders.feature_y.bias",
        "decoders.feature_y.weight",
        "decoders.feature_z.bias",
        "decoders.feature_z.weight",
        "encoders.feature_c1.weight",
        "encoders.feature_c2.weight",
        "encoders.feature_wide.weight",
    ]
    other = build(mixed, seed=1)
    batch = batch_of(mixed)
    assert not torch.equal(net(batch)["z"], other(batch)["z"])
    other.load_state_dict(load_safetensors(save_safetensors(net.state_dict())))
    assert torch.equal(net(batch)["z"], other(batch)["z"])


def test_sharing_a_table_changes_neither_weights_nor_gradients(mixed):
    torch.manual_seed(0)
    alone = {feature.name: feature.encoder({}) for feature in mixed.inputs}
    torch.manual_seed(0)
    together = Inputs(
        {feature.name: feature.encoder({}) for feature in mixed.inputs}, mixed.columns
    )
    batch = batch_of(mixed)
    together(batch).square().sum().backward()
    table, rows = together.shared[0]
    for name in ("c1", "c2"):
        assert torch.equal(together.state_dict()[f"feature_{name}.weight"], alone[name].weight)
        alone[name](batch[name]).square().sum().backward()
        start, stop = next(where[1:] for where in rows if where[0] == f"feature_{name}.weight")
        torch.testing.assert_close(
            getattr(together, table).grad[start:stop], alone[name].weight.grad
        )


def test_weights_that_do_not_fit_are_told_by_feature(mixed):
    net = build(mixed)
    state = net.state_dict()
    del state["encoders.feature_c1.weight"]
    with pytest.raises(
        RuntimeError, match=r"Missing key\(s\) in state_dict: \"encoders.feature_c1.weight\""
    ):
        net.load_state_dict(state)
    before = net.state_dict()["encoders.feature_c1.weight"].clone()
    state["encoders.feature_c2.weight"] = torch.zeros(7, 4)
    assert net.load_state_dict(state, strict=False).missing_keys == ["encoders.feature_c1.weight"]
    assert torch.equal(net.state_dict()["encoders.feature_c1.weight"], before)
    assert (net.state_dict()["encoders.feature_c2.weight"] == 0).all()
    state = net.state_dict() | {"encoders.feature_c1.weight": torch.zeros(2, 4)}
    with pytest.raises(RuntimeError, match=r"size mismatch for encoders\.feature_c1\.weight"):
        net.load_state_dict(state)
    with pytest.raises(
        RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"encoders.feature_d.weight\""
    ):
        net.load_state_dict(net.state_dict() | {"encoders.feature_d.weight": torch.zeros(2, 4)})


def test_the_state_dict_is_a_view_and_not_a_copy(mixed):
    net = build(mixed)
    state = net.state_dict()
    with torch.no_grad():
        getattr(net.encoders, net.encoders.shared[0][0]).zero_()
    assert (state["encoders.feature_c1.weight"] == 0).all()


def test_the_seed_decides_the_weights(mixed):
    first, again, other = (
        build(mixed, 5).state_dict(),
        build(mixed, 5).state_dict(),
        build(mixed, 6).state_dict(),
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_frozen_and_dropped_out_embeddings_share_only_with_their_like():
    inputs = [
        category("a", 5, trainable=False),
        category("b", 5),
        category("c", 5, dropout=0.5),
        category("d", 5),
    ]
    net = build(feature_set(inputs))
    assert [len(rows) for _, rows in net.encoders.shared] == [2]
    assert not net.encoders.feature_a.weight.requires_grad


def test_one_number_and_no_layers_go_straight_to_the_decoder():
    features = feature_set([number("a")])
    net, batch = build(features), batch_of(features)
    torch.testing.assert_close(net(batch)["y"], net.decoders[module_key("y")](batch["a"][:, None]))


def test_columns_that_do_not_lie_side_by_side_are_found_too(mixed):
    net, batch = build(mixed), batch_of(mixed)
    order = [mixed.columns[name] for name in ("y", "z", "keys", "c2", "a", "wide", "c1", "b.x")]
    layout = Layout.of(order)
    words = [batch.packed[:, batch.layout.slots[name].start] for name in layout.slots]
    torch.testing.assert_close(net(Batch(torch.stack(words, 1), layout)), net(batch))


@pytest.mark.parametrize("rows", [0, 1])
def test_small_batches_give_gradients_to_every_weight(mixed, rows):
    net = build(mixed, num_fc_layers=1, norm="batch", dropout=0.1)
    sum(logits.sum() for logits in net(batch_of(mixed, rows)).values()).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_autocast_gives_low_precision_logits_near_the_full_ones(mixed):
    net, batch = build(mixed, num_fc_layers=1), batch_of(mixed)
    with torch.autocast("cpu", torch.bfloat16):
        low = net(batch)["z"]
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), net(batch)["z"], atol=0.05, rtol=0.05)


def test_it_compiles_as_one_graph(mixed):
    net, batch = build(mixed, num_fc_layers=1), batch_of(mixed)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(batch)["z"], net(batch)["z"])
    torch.testing.assert_close(compiled(batch_of(mixed, 5))["z"], net(batch_of(mixed, 5))["z"])


DDP = """
import sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net, batch = torch.load(sys.argv[1], weights_only=False)
wrapped = nn.parallel.DistributedDataParallel(net)
for _ in range(2):
    sum(logits.sum() for logits in wrapped(batch).values()).backward()
dist.destroy_process_group()
assert all(parameter.grad is not None for parameter in net.parameters())
"""


def test_ddp_wraps_it_with_nothing_to_broadcast(mixed, tmp_path):
    """In a process of its own: it once hung for good in one that had run some thousand tests."""
    net, batch = build(mixed, num_fc_layers=1), batch_of(mixed)
    assert list(net.buffers()) == []
    torch.save((net, batch), tmp_path / "net.pt")
    subprocess.run([sys.executable, "-c", DDP, tmp_path / "net.pt"], check=True, timeout=300)


def test_it_moves_to_another_dtype_and_device(mixed):
    net, batch = build(mixed), batch_of(mixed)
    assert build(mixed).to("meta").encoders.starts[0].device.type == "meta"
    expected = net(batch)["z"]
    torch.testing.assert_close(net.double().float()(batch)["z"], expected)
    torch.testing.assert_close(copy.deepcopy(net)(batch)["z"], expected)


def test_outputs_that_depend_on_outputs_are_refused(mixed):
    mixed.outputs[1].options = SimpleNamespace(dependencies=["y"])
    with pytest.raises(
        ConfigError,
        match=r"output_features\[1\].dependencies: known in Ludwig, but not carried out",
    ):
        build(mixed)


@pytest.mark.parametrize(
    ("combiner", "message"),
    [
        (
            {"type": "tabnet"},
            r"combiner.type: 'tabnet' is known in Ludwig, but not carried out here; what is: "
            r"concat",
        ),
        ({"type": "concta"}, r"combiner\.type: .*'concat'"),
        ({"num_fc_layer": 2}, r"unknown option 'num_fc_layer'; did you mean 'num_fc_layers'\?"),
        (
            {"norm": "ghost"},
            "'ghost' is known in Ludwig, but not carried out here; what is: batch, layer",
        ),
        ({"activation": "swiglu"}, "'swiglu' is known in Ludwig, but not carried out here"),
        (
            {"batch_ensemble": True},
            "batch_ensemble is known in Ludwig, but not carried out here; remove it",
        ),
        ({"dropout": 1.5}, r"combiner\.dropout: .*should be less than or equal to 1"),
        ({"weights_initializer": "zavier"}, "unknown initializer; known: uniform, normal"),
        ({"weights_initializer": {"gain": 2}}, "needs `type`"),
        (
            {"weights_initializer": {"type": "normal", "stdd": 1}},
            "initializer normal has no argument 'stdd'; it takes mean, std",
        ),
        (
            {"bias_initializer": {"type": "zeros", "val": 1}},
            "initializer zeros has no argument 'val'; it takes none",
        ),
        (
            {"norm": "batch", "norm_params": {"foo": 1}},
            r"norm_params: .*no argument 'foo'; it takes eps, momentum, affine",
        ),
        (
            {"norm": "batch", "norm_params": {"track_running_stats": False}},
            r"norm_params: track_running_stats: false is not carried out: a prediction would",
        ),
        (
            {"norm": "layer", "norm_params": {"momentum": 1}},
            "norm layer has no argument 'momentum'; it takes eps, elem",
        ),
        (
            {"norm": "layer", "fc_layers": [{"norm_params": {"momentum": 1}}]},
            "norm layer has no argument 'momentum'; it takes eps, elem",
        ),
        (
            {"fc_layers": [{"output_size": 4}, {"size": 4}]},
            r"combiner.fc_layers\[1\].size: unknown option",
        ),
    ],
)
def test_wrong_combiner_options_are_told(combiner, message):
    with pytest.raises(ConfigError, match=message):
        validate(TabularOptions, {"combiner": combiner}, "")


def test_a_layer_of_another_norm_has_the_parameters_of_the_stacks_that_it_takes():
    layers = [{}, {"norm": "layer"}, {"norm": "layer", "norm_params": {"eps": 0.1}}, {"norm": None}]
    combiner = {"norm": "batch", "norm_params": {"momentum": 0.5, "eps": 0.2}}
    combiner["fc_layers"] = layers
    options = validate(TabularOptions, {"combiner": combiner}, "").combiner
    norms = [layer.after[0] for layer in fc_stack(3, options, 0).layers]
    assert norms[0].momentum == 0.5
    assert [each.eps for each in norms[:3]] == [0.2, 0.2, 0.1]
    assert isinstance(norms[3], nn.ReLU)


def test_ludwigs_own_defaults_are_accepted():
    """What Ludwig writes out when it saves a config."""
    saved = {
        "type": "concat",
        "dropout": 0.0,
        "activation": "relu",
        "flatten_inputs": False,
        "residual": False,
        "use_bias": True,
        "bias_initializer": "zeros",
        "weights_initializer": "xavier_uniform",
        "num_fc_layers": 0,
        "output_size": 256,
        "norm": None,
        "norm_params": None,
        "fc_layers": None,
        "batch_ensemble": False,
        "num_ensemble_members": 4,
    }
    own = TabularOptions.model_validate({"combiner": {"type": "concat"}})
    assert validate(TabularOptions, {"combiner": saved}, "") == own


def test_every_feature_of_this_plugin_at_once():
    """Through the plugins and the packed batch, as a run does, and with a gradient for every
    weight."""
    columns = {
        "n": ("number", pa.array([1.0, None, 3.0, 4.0])),
        "b": ("binary", pa.array(["no", "yes", None, "no"]).dictionary_encode()),
        "c": ("category", pa.array(["u", "v", None, "u"]).dictionary_encode()),
        "t": ("text", pa.array(["a, b", None, "c", ""])),
        "s": ("set", pa.array(["x y", "y", None, ""])),
        "target": ("binary", pa.array(["no", "yes", "yes", "no"]).dictionary_encode()),
        "kind": ("category", pa.array(["k", "l", "m", "l"]).dictionary_encode()),
        "value": ("number", pa.array([0.0, 1.0, 2.0, 3.0])),
    }
    plugins = Plugins()
    made = {
        name: plugins.make(
            FEATURE, kind, {}, column=name, role="output" if len(name) > 1 else "input"
        )
        for name, (kind, _) in columns.items()
    }
    metadata = {name: each.finish(each.partial(columns[name][1])) for name, each in made.items()}
    encoded = [each.encode(columns[name][1], metadata[name]) for name, each in made.items()]
    features = SimpleNamespace(
        inputs=[made[name] for name in "nbcts"],
        outputs=[made[name] for name in ("target", "kind", "value")],
        metadata=metadata,
        columns={name: each.column(metadata[name]) for name, each in made.items()},
    )
    batch = pack(pa.record_batch(encoded, names=list(made)), Layout.of(features.columns.values()))
    net = build(features, num_fc_layers=1)
    out = net(batch)
    assert {name: tuple(logits.shape) for name, logits in out.items()} == {
        "target": (4,),
        "kind": (4, 3),
        "value": (4,),
    }
    losses = [
        each.network().loss(out[each.name], batch[each.name], metadata[each.name])
        for each in features.outputs
    ]
    torch.stack(losses).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_without_gradients_only_some_rows_have_a_number_for_each_value(monkeypatch):
    """4,096 rows of a vocabulary of 100,000 would take 5 GB in a prediction."""
    hot = Plain("c", lambda: encoders.OneHot(50)), Column(name="c", dtype="int32")
    features = feature_set([number("a"), hot], (("y", 1), ("z", 3)))
    net, batch, rows = build(features).eval(), batch_of(features, rows=7), []
    net.encoders.register_forward_hook(lambda *call: rows.append(len(call[2])))
    wanted = net(batch)
    monkeypatch.setattr(encoders, "AT_ONCE", 3 * 50 * (8 + 4))
    with torch.inference_mode():
        found = net(batch)
    assert rows == [7, 2, 2, 3]
    net(batch)  # a gradient would keep every slice
    assert rows == [7, 2, 2, 3, 7]
    assert [*found] == ["y", "z"]
    for name, each in found.items():
        torch.testing.assert_close(each, wanted[name])

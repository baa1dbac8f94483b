"""The user's own network: found by name, built with what it asks for, its output checked,
trusted or not."""

import json
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn

from distcore_core.config.issues import validate
from distcore_core.errors import ArtifactError, ConfigError, PluginBroken, UserError
from distcore_core.registry.lock import files_of
from distcore_core.registry.manager import Plugins, run_plugins
from distcore_tabular.module import ModuleModel, describe, is_trusted, resolve
from distcore_tabular.options_network import ModuleOptions
from distcore_testing.installed import lay_metadata

SOURCE = """
import torch
from torch import nn

class Wide(nn.Module):
    def __init__(self, features, width=4):
        super().__init__()
        self.names = [feature.name for feature in features.inputs]
        self.linear = nn.Linear(len(self.names), width)
        self.out = nn.Linear(width, 3)
    def forward(self, batch):
        return {"z": self.out(self.linear(batch.block(self.names))), "y": self.linear(batch.block(self.names))[:, :1]}

class One(nn.Module):
    def __init__(self, what="column"):
        super().__init__()
        self.what = what
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, batch):
        value = batch["a"] * self.weight
        return {
            "flat": value, "column": value[:, None], "wide": value[:, None].expand(-1, 2), "none": None,
            "other": {"x": value}, "int": value.int(), "long": torch.cat([value, value]),
        }[self.what]

class Taking(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.options = {"sizes": list(sizes)}
        self.layer = nn.Linear(sizes.pop(0), 1)

class Broken(nn.Module):
    def __init__(self):
        raise RuntimeError("no such luck")

class Kept(nn.Linear):
    def __init__(self, size):
        super().__init__(size, 1)
        self.options = {"size": size}

class Plain(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.drop, self.one, self.two = nn.Dropout(p), nn.Linear(2, 2), nn.Linear(2, 2)

class Outer:
    class Net(nn.Module):
        pass

def function():
    pass
"""


class Plain:
    """A feature and its network in one."""

    def __init__(self, name, classes=()):
        self.name, self.classes = name, classes

    def network(self):
        return self

    def decoder(self, metadata, input_size):
        classes = self.classes

        class Decoder(nn.Linear):
            def forward(self, hidden):
                out = super().forward(hidden)
                return out if classes else out.squeeze(1)

        return Decoder(input_size, *(classes or (1,)))


class FeatureSet:
    """Inputs a, b and the given outputs."""

    def __init__(self, *outputs):
        self.inputs = [Plain("a"), Plain("b")]
        self.outputs = outputs
        self.metadata = {output.name: {} for output in outputs}


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The name of a module with networks, in a folder on the path."""
    name = f"nets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def batch():
    from distcore_core.contracts import Column
    from distcore_torch.batch import Batch, Layout

    packed = torch.randn(5, 2).view(torch.int32)
    return Batch(
        packed, Layout.of([Column(name="a", dtype="float32"), Column(name="b", dtype="float32")])
    )


def model_of(path, **options):
    return ModuleModel(validate(ModuleOptions, {"class": path, "options": options}, "model"))


def test_a_class_that_asks_for_features_gets_them_and_keeps_its_own_weight_names(nets, batch):
    features = FeatureSet(Plain("y"), Plain("z", (3,)))
    net = model_of(f"{nets}:Wide", width=7).build(features)
    assert sorted(net.state_dict()) == ["linear.bias", "linear.weight", "out.bias", "out.weight"]
    assert net.linear.out_features == 7
    out = net(batch)
    assert {name: tuple(logits.shape) for name, logits in out.items()} == {"y": (5,), "z": (5, 3)}


@pytest.mark.parametrize("what", ["flat", "column"])
def test_with_one_output_the_tensor_alone_is_enough(nets, batch, what):
    out = model_of(f"{nets}:One", what=what).build(FeatureSet(Plain("y")))(batch)
    assert list(out) == ["y"]
    assert torch.equal(out["y"], batch["a"])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "wide",
            r"returned torch.float32 \(5, 2\) for output 'y', but floating point \(5,\) is needed",
        ),
        ("long", r"returned torch.float32 \(10,\) for output 'y'"),
        ("int", r"returned torch.int32 \(5,\) for output 'y'"),
        ("none", r"returned NoneType, but logits for \['y'\] are needed"),
        ("other", r"returned \['x'\], but logits for \['y'\] are needed"),
    ],
)
def test_output_that_does_not_fit_is_told(nets, batch, what, message):
    net = model_of(f"{nets}:One", what=what).build(FeatureSet(Plain("y")))
    with pytest.raises(UserError, match=message):
        net(batch)


def test_checking_shapes_draws_no_random_number(nets):
    features = FeatureSet(Plain("y"), Plain("z", (3,)))
    torch.manual_seed(0)
    built = model_of(f"{nets}:Wide").build(features)
    torch.manual_seed(0)
    by_hand = resolve(f"{nets}:Wide")(features)
    assert torch.equal(built.linear.weight, by_hand.linear.weight)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (
            "{}:Wide",
            {"depth": 3},
            "model.options: .*unexpected keyword argument 'depth'; it takes width",
        ),
        ("{}:Broken", {}, "making .*:Broken failed: RuntimeError: no such luck"),
        (
            "{}:Wyde",
            {},
            "model.class: .* has no Wyde; its classes are: Broken, Kept, One, Plain, Taking, Wide",
        ),
        ("{}:function", {}, "model.class: .* is no subclass of torch.nn.Module"),
        ("{}.Wide", {}, "model.class: must be package.module:Class"),
        (
            "no_such_package.nets:Net",
            {},
            "importing no_such_package.nets failed: ModuleNotFoundError",
        ),
    ],
)
def test_a_wrong_class_or_wrong_options_are_told(nets, path, options, message):
    with pytest.raises(ConfigError, match=message):
        model_of(path.format(nets), **options).build(FeatureSet(Plain("y")))


def test_a_nested_class_is_found(nets):
    assert resolve(f"{nets}:Outer.Net").__qualname__ == "Outer.Net"


def test_a_network_of_a_part_whose_file_was_edited_since_its_import_is_told(
    nets, tmp_path, caplog, monkeypatch
):
    for name, text in (
        (f"{nets}_part", "from torch import nn\nclass Part(nn.Linear): pass\n"),
        (
            f"{nets}_whole",
            f"from torch import nn\nfrom {nets}_part import Part\nclass Net(nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n        self.part = Part(1, 1)\n",
        ),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    model = model_of(f"{nets}_whole:Net")
    for name in ("part", "whole"):
        caplog.clear()
        model.build(FeatureSet(Plain("y")))
        assert caplog.messages == []
        file = tmp_path / f"{nets}_{name}.py"
        file.write_text(f"{file.read_text()}\n")
        if name == "whole":
            model.check()  # before any work
        model.build(FeatureSet(Plain("y")))
        (told,) = caplog.messages
        assert f"{file} was changed after this process had imported it" in told
        monkeypatch.delitem(sys.modules, f"{nets}_{name}")


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "net_beside_the_config.py").write_text(
        "from torch import nn\nclass Net(nn.Module): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert resolve("net_beside_the_config:Net").__name__ == "Net"
    del sys.modules["net_beside_the_config"]


# ------------------------------------------------------------------ from Python


def test_a_class_or_an_instance_is_described_by_name(nets):
    kept = resolve(f"{nets}:Kept")
    assert describe(kept) == ({"type": "module", "class": f"{nets}:Kept", "options": {}}, None)
    instance = kept(3)
    reference, weights = describe(instance)
    assert reference == {"type": "module", "class": f"{nets}:Kept", "options": {"size": 3}}
    assert torch.equal(weights["weight"], instance.weight)


def halved(module, arguments, output):
    return output / 2


def test_an_instance_that_cannot_be_made_again_is_refused():
    with pytest.raises(UserError, match="cannot be made again without in_features, out_features"):
        describe(nn.Linear(2, 1))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda net: setattr(net.drop, "p", 0.5), r"drop\.p is 0\.5 here, and 0\.0 there"),
        (lambda net: net.one.requires_grad_(False), r"one\.weight\.requires_grad is False here"),
        (lambda net: net.double(), r"one\.weight\.dtype is torch\.float64 here"),
        (lambda net: setattr(net, "two", nn.Identity()), "class of two is Identity here"),
        (
            lambda net: net.one.register_forward_hook(halved),
            "what is hooked to one is halved here, and nothing there",
        ),
        (
            lambda net: setattr(net.two, "weight", net.one.weight),
            r"tensor of two\.weight is that of one\.weight here, and that of two\.weight there",
        ),
    ],
)
def test_an_instance_that_is_no_longer_what_its_class_makes_is_refused(nets, change, told):
    net = resolve(f"{nets}:Plain")()
    before = torch.get_rng_state()
    with torch.no_grad():
        net.one.weight.zero_()
    assert describe(net.eval())[1].keys() == net.state_dict().keys()
    change(net)
    with pytest.raises(UserError, match=told):
        describe(net)
    assert torch.equal(torch.get_rng_state(), before)


def test_local_classes_are_refused_and_those_of_scripts_unless_nothing_is_saved(monkeypatch):
    class Net(nn.Module):
        pass

    with pytest.raises(UserError, match="was made inside a function"):
        describe(Net, saved=False)
    Net.__qualname__, Net.__module__ = "Net", "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "Net", Net, raising=False)
    with pytest.raises(UserError, match="is defined in this script or notebook"):
        describe(Net)
    assert describe(Net, saved=False)[0]["class"] == "__main__:Net"


def test_a_class_that_only_another_process_has_in_main_is_told_with_what_to_do():
    with pytest.raises(ConfigError, match=r"class of a script or notebook .* into a module"):
        resolve("__main__:OnlyInANotebook")


def test_a_class_that_hides_behind_anothers_name_is_refused(nets):
    impostor = type("Wide", (nn.Module,), {"__module__": nets})
    with pytest.raises(UserError, match="is another class than the one given"):
        describe(impostor)


# ------------------------------------------------------------------ trust


def test_classes_of_plugins_are_trusted_and_others_are_not():
    assert is_trusted("distcore_tabular.network:TabularNetwork")
    assert not is_trusted("torch.nn:Linear")
    assert not is_trusted("os:system")
    assert not is_trusted("no_such_package:Net")


def test_a_package_that_several_distributions_share_is_trusted_only_if_all_are(monkeypatch):
    shared = {
        "shared": ["distcore-tabular", "somebody-else"],
        "ours": ["distcore-tabular", "distcore-local"],
    }
    monkeypatch.setattr(metadata, "packages_distributions", lambda: shared)
    assert not is_trusted("shared.nets:Net")
    assert is_trusted("ours.nets:Net")


def test_an_untrusted_model_is_refused_before_its_code_runs(nets):
    model = model_of(f"{nets}:Broken")
    with pytest.raises(ArtifactError, match=r"would run that code.*--trust, which asks neither"):
        model.check_trust(False)
    assert nets not in sys.modules
    model.check_trust(True)
    model_of("distcore_tabular.network:TabularNetwork").check_trust(False)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_class_counts_only_of_a_plugin_that_may_be_imported(tmp_path, monkeypatch, recorded):
    """recorded: its distribution lists its files; an editable one may not."""
    name = f"stray_{recorded}".lower()
    package, info = tmp_path / name, lay_metadata(tmp_path, name, {"metrics": {"stray": name}})
    package.mkdir()
    (package / "__init__.py").write_text("from torch.nn import Linear\nclass Net(Linear): pass\n")
    if recorded:
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    model, lock = model_of(f"{name}:Net"), tmp_path / "lock"
    for variable, value, files, error in (
        ("DISTCORE_BLOCK", name, None, ArtifactError),
        ("DISTCORE_BLOCK", "metrics:stray", None, ArtifactError),
        ("DISTCORE_LOCK", str(lock), {"distcore-tabular": {"files": {}}}, ArtifactError),
        ("DISTCORE_LOCK", str(tmp_path / "lock2"), {name: {"files": {"x": "y"}}}, PluginBroken),
        ("DISTCORE_LOCK", str(tmp_path / "none"), None, PluginBroken),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            if files:
                Path(value).write_text(json.dumps({"distributions": files}))
            with pytest.raises(error):
                model.check_trust(False)
        assert name not in sys.modules
    with (
        run_plugins(Plugins(["metrics:stray"])),
        pytest.raises(ArtifactError, match="blocked, or that a lock does not name"),
    ):
        model.check_trust(False)
    with monkeypatch.context() as patch:
        patch.setenv("DISTCORE_LOCK", str(tmp_path / "lock3"))
        files = {name: {"files": files_of(name)}}
        (tmp_path / "lock3").write_text(json.dumps({"distributions": files}))
        model.check_trust(False)
    model.check_trust(False)


def test_a_class_that_takes_its_options_apart_is_made_of_the_same_ones_again(nets):
    """The saved model named what was left of them."""
    path = f"{nets}:Taking"
    options = ModuleOptions.model_validate({"class": path, "options": {"sizes": [4, 2]}})
    model = ModuleModel(options)
    for _ in range(2):
        kind, arguments = model._call(None)
        assert kind(**arguments).layer.in_features == 4
    assert options.options == {"sizes": [4, 2]}
    told, _ = describe(resolve(path)([4, 2]))
    assert told["options"] == {"sizes": [4, 2]}

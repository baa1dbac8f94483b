"""Models that name code, paths and addresses: without --trust nothing of it is imported, made,
opened or written.

Every model here is whole and rightly sealed: whoever made it knows the format.
"""

import hashlib
import json
import shutil
import sys
from typing import Any

import pytest

from distcore_core.registry.manager import Plugins
from distcore_data.seals import sealed, unsealed

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("mark").touch()
from torch import nn

class Net(nn.Module):
    __module__ = "distcore_tabular.network"
"""

CLASSES = (
    "distcore_tabular.module:torch.nn.Linear",
    "distcore_tabular.module:nn.Linear",
    "distcore_tabular.module:nn.Module",
    "distcore_tabular.module:os.system",
    "distcore_tabular.module:importlib.import_module",
    "distcore_tabular.module:sys.modules",
    "distcore_tabular.module:resolve",
    "distcore_tabular.module:ModuleModel",
    "distcore_tabular.module:ModuleModel.__init__.__globals__",
    "distcore_tabular.module:inspect.sys.modules",
    "distcore_tabular.network:TabularNetwork.__base__",
    "distcore_tabular.network:TabularNetwork.__class__",
    "distcore_tabular.network:TabularNetwork.__init__",
    "distcore_tabular.network:TabularNetwork.__mro__",
    "distcore_tabular.no_such_module:Net",
    "distcore_tabular.module:",
    "distcore_tabular:module.nn.Linear",
    "distcore.cli.main:main",
    "distcore.workflow.probe:_child",
    "distcore.__main__:Net",
    "distcore_tabular.__main__:Net",
    "torch.nn:Linear",
    "torch.nn:Sequential",
    "torch.hub:load",
    "torch:load",
    "os:system",
    "posix:system",
    "subprocess:Popen",
    "builtins:exec",
    "builtins:eval",
    "builtins:__import__",
    "functools:partial",
    "pickle:loads",
    "runpy:run_path",
    "webbrowser:open",
    "antigravity:Net",
    "__main__:Net",
    "evil:Net",
    "evil.inner:Net",
    "evil:Net.__base__",
    "evil.__main__:Net",
    ".evil:Net",
    "..evil:Net",
    "evil",
    ":Net",
    ":",
    "",
    "evil:Net:Net",
    "evil\n:Net",
    " evil:Net",
    "évil:Net",
    "evil/evil:Net",
    "a" * 100_000 + ":Net",
)


@pytest.fixture
def model(place, trained):
    """A folder with a trained model; a module that leaves a mark when it is imported lies where
    commands are run."""
    place.write("evil.py", EVIL)
    return shutil.copytree(trained / "model", place.folder / "model")


def changed(model, **parts: Any) -> None:
    """model.json with other parts, sealed."""
    path = model / "model.json"
    path.write_bytes(sealed({**unsealed(path.read_bytes()), **parts}))


def refused(place, model, command="predict") -> str:
    done = place.run(command, "--model_path", model)
    assert done.code in (1, 2), done.out + done.err
    assert "Traceback" not in done.err
    assert "not expected" not in done.err, done.err
    assert not list(place.folder.rglob("mark"))
    assert "evil" not in sys.modules
    assert "antigravity" not in sys.modules
    return done.err


def test_a_class_that_no_plugin_brings_is_neither_imported_nor_made(place, model, sweep):
    kept, wanted = (model / "model.json").read_bytes(), sweep.times(8, len(CLASSES))
    for path in sweep.random.sample(CLASSES, wanted):
        (model / "model.json").write_bytes(kept)
        extra = {
            **unsealed(kept)["extra"],
            "model": {"type": "module", "options": {"class": path, "options": {}}},
        }
        changed(model, extra=extra)
        refused(place, model)
        options = {"class": path, "options": {"in_features": 1, "out_features": 1}}
        changed(model, extra={**extra, "model": {"type": "module", "options": options}})
        refused(place, model)
    sweep.tried(
        "a model of a class of somebody's, under any alias",
        2 * wanted,
        "refused, nothing imported or run",
    )


ABSENT = "no_such_plugin"
PARTS: dict[str, Any] = {
    "a trainer by a path": {"trainer": {"type": "../../evil", "options": {}}},
    "a trainer that is a module": {"trainer": {"type": "evil:Net", "options": {}}},
    "a trainer that is nobody's": {"trainer": {"type": ABSENT, "options": {}}},
    "a trainer that is no mapping": {"trainer": "evil"},
    "features that are no list": {"features": {"type": "evil"}},
    "a feature that is nobody's": {
        "features": [{"name": "a", "type": ABSENT, "column": "a", "role": "input", "options": {}}]
    },
    "a feature without a role": {"features": [{"name": "age", "type": "number"}]},
    "extensions that are no list": {"extensions": "evil"},
    "an extension without a type": {"extensions": [{"path": "mark"}]},
    "plugins that are no list": {"plugins": "evil"},
    "a plugin without a name": {"plugins": [{"kind": "distcore.models"}]},
    "a model by a path": {"extra": {"model": {"type": "../evil", "options": {}}}},
    "weights outside": {"extra": {"weights": {"best": "../../data.csv"}}},
    "no metadata": {"metadata": {}},
    "a file outside": {"files": {"../data.csv": {"bytes": 1, "sha256": "0"}}},
    "a file by an absolute path": {"files": {"/etc/passwd": {"bytes": 1, "sha256": "0"}}},
    "a file with a number for a name": {"files": {"..": {"bytes": 1, "sha256": "0"}}},
    "files that are no mapping": {"files": ["weights.safetensors"]},
    "another version": {"version": 99},
    "no version": {"version": None},
}


def test_parts_of_a_model_that_name_what_is_not_there(place, model, sweep):
    kept = (model / "model.json").read_bytes()
    for parts in PARTS.values():
        (model / "model.json").write_bytes(kept)
        changed(model, **parts)
        refused(place, model)
    sweep.tried(
        "a part of model.json that names a path, a module, or nothing",
        len(PARTS),
        "refused in words",
    )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_nothing_that_a_model_names_is_made_opened_or_written(
    place, model, sweep, monkeypatch, command
):
    """Extensions with paths and addresses, another backend, a cache elsewhere: the command does
    what it was told."""
    made, make = [], Plugins.make

    def told(self, kind, name, options=None, **context):
        made.append((kind if isinstance(kind, str) else kind.kind, name))
        return make(self, kind, name, options, **context)

    monkeypatch.setattr(Plugins, "make", told)
    mark = str(place.folder / "mark")
    extensions = [
        {"type": "rounds", "path": mark},
        {"type": "mlflow", "tracking_uri": "http://127.0.0.1:1"},
        {"type": "tensorboard", "directory": mark},
        {"type": "../evil"},
    ]
    backend = {"type": "ray", "address": "ray://127.0.0.1:1"}
    changed(
        model,
        extensions=extensions,
        backend=backend,
        cache_dir=mark,
        dataset=mark,
        output_directory=mark,
    )
    changed(model, trainer={"type": "local", "options": {"logdir": mark}})
    before = {name for name in place.listing() if not name.startswith("results")}
    done = place.good(command, "--model_path", model)
    assert done.err.count("--trust") == len(extensions)
    assert {name for name in place.listing() if not name.startswith("results")} == before
    assert not [name for kind, name in made if kind == "extensions"]
    assert [name for kind, name in made if kind == "backends"] == ["local"]
    sweep.tried(
        f"extensions, backend and paths in the model of `{command}`",
        len(extensions) + 5,
        "none made or used",
    )


@pytest.mark.parametrize("target", ["/etc/passwd", "data.csv"])
@pytest.mark.parametrize("name", ["weights.safetensors"])
def test_links_in_a_models_folder_are_not_followed(place, model, sweep, target, name):
    content = (place.folder / target).read_bytes()
    (model / name).unlink()
    (model / name).symlink_to(place.folder / target)
    files = {name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    changed(model, files=files)
    assert f"{name} is missing" in refused(place, model)
    sweep.tried(f"a link to {target} in a model's folder", 1, "refused")


def test_a_link_in_the_place_of_model_json_is_not_followed(place, model, sweep):
    (model / "model.json").rename(place.folder / "there.json")
    (model / "model.json").symlink_to(place.folder / "there.json")
    assert "it is a link, and links are not followed" in refused(place, model)
    sweep.tried("a link in the place of model.json", 1, "refused")


def test_a_model_that_is_json_without_end(place, model, sweep):
    kept = json.loads((model / "model.json").read_bytes())
    bombs = {
        "deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
        "twice": json.dumps(kept)[:-1] + ', "trainer": {"type": "evil"}}',
        "large number": json.dumps({**kept, "random_seed": 0}).replace(
            '"random_seed": 0', '"random_seed": 1e999'
        ),
        "not a number": json.dumps({**kept, "random_seed": float("nan")}),
        "many": '{"a": [' + "[]," * 2_000_000 + "[]]}",
    }
    for text in bombs.values():
        rest = ("\n " + text[1:] + "\n").encode()
        (model / "model.json").write_bytes(
            b'{\n "digest": "%s",' % hashlib.sha256(rest).hexdigest().encode() + rest
        )
        assert "model.json is damaged" in refused(place, model)
    sweep.tried(
        "a rightly sealed model.json that is too deep, too large, or no JSON",
        len(bombs),
        "refused in words",
    )

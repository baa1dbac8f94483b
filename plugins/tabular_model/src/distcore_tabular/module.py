"""The user's own network: `model: {type: module, class: "package.module:Net", options: {…}}`.

    class Net(nn.Module):
        def __init__(self, features, width=64): ...   # `features` is given if the class asks for it
        def forward(self, batch):                     # batch["age"]: [B]; batch["words"]: a Ragged
            return {"income": logits}                 # or the tensor alone, if there is one output

Logits of a binary are log-odds, those of a category one for each class; a number's are standard
deviations from the mean of the target, so that a network learns targets of any size alike.

Saved are the class's import path, the options and the weights; nothing is pickled. Weights keep the
class's own names.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from distcore_core.contracts import JSON, ModelBase
from distcore_core.errors import ArtifactError, ConfigError, ConfigIssue, UserError
from distcore_core.registry.index import all_offers
from distcore_core.registry.lock import refuse_changed
from distcore_core.registry.manager import environment_plugins
from distcore_tabular.layers import HOOKS
from distcore_tabular.network import half
from distcore_torch.training.determinism import initial_weights
from distcore_torch.training.facts import content_when_imported, warn_if_edited

if TYPE_CHECKING:
    from distcore_core.contracts import FeatureSet
    from distcore_tabular.options_network import ModuleOptions


PLAIN = (bool, int, float, str, type(None))
"""Values of settings, such as the probability of a dropout."""


class ModuleModel(ModelBase):
    """The model `module`. options: class, options."""

    def __init__(self, options: ModuleOptions) -> None:
        self.options = options

    def check_trust(self, trust: bool) -> None:
        """Raise ArtifactError unless the user trusts the class or an installed plugin brought it.

        Called before a saved model is built: building it runs the class. A module of an installed
        plugin is imported, for a class counts where it was defined, and not under which names
        others have it."""
        path = self.options.class_
        if trust:
            return
        if is_trusted(path):
            kind = resolve(path)
            home = f"{kind.__module__}:{kind.__qualname__}"
            if is_trusted(home) and _found_at(home, kind):
                return
            path = f"{path} ({home})"
        raise ArtifactError(
            f"The model is of class {path}, which no installed distcore plugin brings (one that is "
            "blocked, or that a lock does not name, does not count); opening it would run that "
            "code. If you trust the model and where you have it from, say so with --trust, which "
            "asks neither a block nor a lock."
        )

    def check(self) -> None:
        """The class is not made: for before any work. Raises ConfigError if there is none of this
        name, or it does not take the options."""
        self._call(None)

    def _call(self, features: FeatureSet | None) -> tuple[type[nn.Module], dict[str, Any]]:
        """The class, and the arguments that it takes."""
        kind = resolve(self.options.class_)
        signature = inspect.signature(kind)
        arguments = copy.deepcopy(self.options.options)  # an __init__ may take them apart
        if "features" in signature.parameters:
            arguments.setdefault("features", features)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            names = [name for name in signature.parameters if name != "features"]
            takes = f"it takes {', '.join(names)}" if names else "it takes none"
            message = f"{self.options.class_} cannot be called with these options: {error}; {takes}"
            raise ConfigError([ConfigIssue(0, "model.options", message)]) from error
        return kind, arguments

    def build(self, features: FeatureSet) -> nn.Module:
        """The user's module, its output checked and named. Raises ConfigError if class or
        options are wrong."""
        net = _made(self.options.class_, *self._call(features))
        warn_if_edited(net)
        net.register_forward_hook(NamedOutputs(self.options.class_, expected_shapes(features)))
        return net


class NamedOutputs:
    """A forward hook: whatever the module returns becomes {output feature: logits}, of the shapes
    that are needed.

    [B, 1] is taken for [B]; anything else that does not fit is a UserError.

    shapes: {output feature: what follows B, () or (classes,)}.
    """

    def __init__(self, class_path: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.class_path = class_path
        self.shapes = dict(shapes)

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], output: Any
    ) -> dict[str, torch.Tensor]:
        rows = arguments[0].rows
        if isinstance(output, torch.Tensor) and len(self.shapes) == 1:
            output = {next(iter(self.shapes)): output}
        if not isinstance(output, Mapping) or set(output) != set(self.shapes):
            got = sorted(map(str, output)) if isinstance(output, Mapping) else type(output).__name__
            raise UserError(
                f"forward of {self.class_path} returned {got}, but logits for "
                f"{sorted(self.shapes)} are needed. Return a dict with a tensor for each output "
                "feature (or, if there is one output, the tensor)."
            )
        return {
            name: self._fitted(name, output[name], (rows, *shape))
            for name, shape in self.shapes.items()
        }

    def _fitted(self, name: str, logits: Any, shape: tuple[int, ...]) -> torch.Tensor:
        if isinstance(logits, torch.Tensor) and logits.is_floating_point():
            if logits.shape == shape:
                return logits
            if len(shape) == 1 and logits.shape == (*shape, 1):
                return logits.squeeze(1)
        got = (
            f"{logits.dtype} {tuple(logits.shape)}"
            if isinstance(logits, torch.Tensor)
            else type(logits).__name__
        )
        raise UserError(
            f"forward of {self.class_path} returned {got} for output {name!r}, but floating point "
            f"{shape} is needed: a value for each row, and for each class if there are classes. "
            "Change what it returns."
        )


def expected_shapes(features: FeatureSet) -> dict[str, tuple[int, ...]]:
    """What follows B in the logits of each output feature, as its own decoder gives them. Draws
    no random number."""
    shapes = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for feature in features.outputs:
            decoder = half(feature, "decoder", features.metadata[feature.name], 1).eval()
            shapes[feature.name] = tuple(decoder(torch.zeros(2, 1)).shape[1:])
    return shapes


def resolve(class_path: str) -> type[nn.Module]:
    """Import the class. class_path: "package.module:Net", or "package.module:Outer.Net" for a class
    in a class. A module in the working directory is found too.

    Raises ConfigError saying which part is wrong."""
    module_name, _, name = class_path.partition(":")
    # A package's __main__ is a program: importing it would run it.
    if not module_name or not name or module_name.endswith(".__main__"):
        raise _issue(f"must be package.module:Class, such as nets.wide:Net; got {class_path!r}")
    package = module_name.partition(".")[0]
    known = package in sys.modules or importlib.util.find_spec(package) is not None
    if not known and os.getcwd() not in sys.path:
        # The command line starts with its own folder on the path, not with the user's.
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may raise anything; it is chained
        message = (
            f"importing {module_name} failed: {type(error).__name__}: {error}; install it, or "
            "start where it lies"
        )
        raise _issue(message) from error
    for part in name.split("."):
        if not hasattr(found, part):
            if module_name == "__main__":
                raise _issue(
                    f"this process has no {name}: a class of a script or notebook is not known to "
                    "the processes that it starts; move it into a module (a file beside it will "
                    "do) and import it"
                )
            raise _issue(
                f"{module_name} has no {name}; its classes are: "
                f"{', '.join(_modules_in(found)) or 'none'}"
            )
        found = getattr(found, part)
        if not isinstance(found, type):
            kind = type(found).__name__
            raise _issue(
                f"{class_path} is no subclass of torch.nn.Module: {part} is a {kind}; name the "
                "class itself"
            )
    if not issubclass(found, nn.Module):
        raise _issue(f"{class_path} is no subclass of torch.nn.Module; name the class itself")
    content_when_imported(found)  # the earlier it is asked, the surer it is
    return found


def describe(
    model: type[nn.Module] | nn.Module, saved: bool = True
) -> tuple[JSON, dict[str, torch.Tensor] | None]:
    """What a Python call that was given a class or an instance puts into the config, and the
    weights to start from.

    An instance is made again in each worker and when the model is loaded, so its class must need no
    arguments, or it keeps them as `options`. Raises UserError if the class could not be found
    again (one made inside a function, or, if the model is to be saved, one of a script or
    notebook), or if what is made is another network than the instance."""
    kind = model if isinstance(model, type) else type(model)
    path = f"{kind.__module__}:{kind.__qualname__}"
    if "<" in kind.__qualname__:
        raise UserError(
            f"Class {path} was made inside a function, so no worker and no saved model could find "
            "it again. Move it to the top level of a module."
        )
    if saved and kind.__module__ == "__main__":
        raise UserError(
            f"Class {kind.__qualname__} is defined in this script or notebook, so a saved model "
            "could not find it again. Move it into a module (a file beside it will do) and import "
            "it, or train with skip_save_model."
        )
    if resolve(path) is not kind:
        raise UserError(
            f"{path} is another class than the one given. Give the class that its module holds."
        )
    if isinstance(model, type):
        return {"type": "module", "class": path, "options": {}}, None
    options = getattr(model, "options", None)
    options = dict(options) if isinstance(options, Mapping) else {}
    required = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in (*options, "features")
    ]
    if required:
        raise UserError(
            f"A {path} cannot be made again without {', '.join(required)}. Keep the arguments in "
            "it as `options` (a dict), or give the class and its options: {'type': 'module', "
            "'class': …, 'options': {…}}."
        )
    if "features" in options or "features" not in inspect.signature(kind).parameters:
        with initial_weights():
            _check_same(path, model, _made(path, kind, copy.deepcopy(options)))
    return {"type": "module", "class": path, "options": options}, model.state_dict()


def is_trusted(class_path: str) -> bool:
    """Whether the class's package was installed by distributions all of which offer a distcore
    plugin that is not blocked and that a lock in force names.

    Looks at metadata and files alone and imports nothing. Raises PluginBroken if one of these
    distributions is not as the lock says."""
    package, plugins = _top(class_path), environment_plugins()
    offers = [
        each for some in all_offers().values() for each in some if not plugins.is_blocked(each)
    ]
    found = {each.distribution: each.who for each in offers}
    # An editable install may list no packages; where its plugin lies tells one.
    providers = set(metadata.packages_distributions().get(package, ())) or {
        each.distribution for each in offers if _top(each.value) == package
    }
    if not providers or not providers <= found.keys():
        return False
    for each in sorted(providers):
        refuse_changed(each, found[each])
    return True


def _top(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def _found_at(class_path: str, kind: type) -> bool:
    """Whether this is the class that has the path: what a class says of itself can be anything."""
    try:
        return resolve(class_path) is kind
    except ConfigError:
        return False


def _made(path: str, kind: type[nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    try:
        return kind(**arguments)
    except Exception as error:  # the user's code may raise anything; it is chained
        message = f"making {path} failed: {type(error).__name__}: {error}; correct its __init__"
        raise ConfigError([ConfigIssue(0, "model", message)]) from error


def _check_same(path: str, given: nn.Module, made: nn.Module) -> None:
    """Raise UserError if the network that is made of the class differs from the instance in more
    than its weights."""
    ours, theirs = _facts(given), _facts(made)
    for what in {**ours, **theirs}:
        if ours.get(what) != theirs.get(what):
            raise UserError(
                f"A {path} is made anew wherever it is trained or loaded, and a new one would be "
                f"another network than this: {what} is {ours.get(what, 'nothing')} here, and "
                f"{theirs.get(what, 'nothing')} there. Let its __init__ do what was done to it, "
                "and keep the arguments in it as `options` (a dict), or give the class and its "
                "options: {'type': 'module', 'class': …, 'options': {…}}."
            )


def _facts(net: nn.Module) -> dict[str, str]:
    """What weights do not tell of a network: classes, plain settings and hooks of its parts, which
    parameters are trained, and which are one and the same."""
    facts, names = {}, dict[int, str]()
    for name, part in net.named_modules(remove_duplicate=False):
        # Not the class itself: torch makes a new one for each layer with a parametrization.
        facts[f"the class of {name or 'it'}"] = type(part).__qualname__
        for attribute, value in vars(part).items():
            values = value if isinstance(value, tuple) else (value,)
            hidden = attribute.startswith("_") or attribute == "training"
            if not hidden and all(isinstance(each, PLAIN) for each in values):
                facts[f"{name}.{attribute}".lstrip(".")] = repr(value)
        hooks = [hook for kind in HOOKS for hook in vars(part)[kind].values()]
        if hooks:
            named = (getattr(hook, "__name__", type(hook).__name__) for hook in hooks)
            facts[f"what is hooked to {name or 'it'}"] = ", ".join(named)
    for name, parameter in net.named_parameters(remove_duplicate=False):
        facts[f"{name}.requires_grad"] = str(parameter.requires_grad)
        facts[f"{name}.dtype"] = str(parameter.dtype)
        if not nn.parameter.is_lazy(parameter):
            facts[f"{name}.shape"] = str(tuple(parameter.shape))
        facts[f"the tensor of {name}"] = f"that of {names.setdefault(id(parameter), name)}"
    return facts


def _modules_in(found: Any) -> list[str]:
    return sorted(
        name
        for name, value in vars(found).items()
        if isinstance(value, type) and issubclass(value, nn.Module)
    )


def _issue(message: str) -> ConfigError:
    return ConfigError([ConfigIssue(0, "model.class", message)])

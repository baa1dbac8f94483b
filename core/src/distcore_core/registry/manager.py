"""The plugins of a process: one by name, checked, registered, with its options; and the questions
that all are asked.

index.py knows what is installed, loader.py imports one; pluggy answers "is it well formed, and who
else listens?".
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import pluggy

from distcore_core import events, hooks
from distcore_core.contracts import COMMAND, MEMBER_HOOK, MODEL, UPGRADE, Detection, Role
from distcore_core.contracts.roles import singular
from distcore_core.errors import ConfigError, ConfigIssue, DistcoreError, PluginBroken, UserError
from distcore_core.registry.index import Encoder, Installed, Offer
from distcore_core.registry.loader import load

if TYPE_CHECKING:
    from distcore_core.config.document import Document

R = TypeVar("R")


class Plugins(Installed):
    """The installed plugins of this process.

    block: what the config's `plugins.block` names, added to DISTCORE_BLOCK.
    named_members: (kind, name) of members from outside that sections named (`with_members`).
    made: {type of what a factory made: who offers it}.
    unasked: {backend: why it cannot be asked what it sees}, of the last `detect`.
    """

    def __init__(self, block: Iterable[str] = ()) -> None:
        super().__init__(block)
        self.manager = pluggy.PluginManager(hooks.PROJECT)
        self.manager.add_hookspecs(hooks)
        self.manager.add_hookspecs(events)
        self._modules: dict[tuple[str, str], types.ModuleType] = {}
        self._registering = threading.Lock()
        self.named_members: set[tuple[str, str]] = set()
        self.made: dict[type, Offer] = {}
        self.unasked: dict[str, str] = {}
        self._valid: WeakKeyDictionary[type, set[tuple[str, str, str]]] = WeakKeyDictionary()

    # -------------------------------------------------------------- one by name

    def load(self, kind: str, name: str) -> types.ModuleType:
        """Import, check and register the plugin that offers the name."""
        if (kind, name) not in self._modules:
            module = load(offer := self.find(kind, name))
            with self._registering:
                self._register(offer, module)
            self._modules[kind, name] = module
        return self._modules[kind, name]

    def make(self, role: Role[R], name: str, options: Any = None, /, **context: Any) -> R:
        """Call the plugin's factory.

        Args:
            role: One of `contracts.ROLES`, or one that a toolkit or a plugin declares.
            name: As an entry point offers it.
            options: A mapping, validated by the plugin's own model, or an instance of that model.
            context: What else the role's hook asks for.

        Raises:
            PluginError: The plugin is not there, is broken, or what it made lacks something of its
                role.
            ConfigError: The options are not what its model takes.
        """
        offer = self.find(role.kind, name)
        module = self.load(role.kind, name)
        if role is not COMMAND:
            valid = self.validate(role.kind, name, options, role=context.get("role", ""))
            member = role.hook == MEMBER_HOOK
            context = {"kind": role.kind, "context": context} if member else context
            context["options"] = valid
            context["plugins"] = self
        # Of several plugins the one that the entry point names is asked, with every extension.
        modules = (each for _, each in self.manager.list_name_plugin() if each is not module)
        others = [each for each in modules if isinstance(each, types.ModuleType)]
        with _answering(offer, role.hook):
            made: R | None = self.manager.subset_hook_caller(role.hook, others)(
                name=name, **context
            )
        if made is None:
            raise PluginBroken(
                f"{offer.who} offers {role.singular} {name!r}, but its {role.hook} answered None, "
                "or is not marked with @hookimpl. Report this to its authors."
            )
        if lacks := role.lacks(made):
            raise PluginBroken(
                f"{offer.who} offers {role.singular} {name!r}, but what its {role.hook} made has "
                f"no {', '.join(lacks)}. Compare it with "
                f"{role.type.__module__}.{role.type.__name__}, or report this to its authors."
            )
        self.made[type(made)] = offer
        return made

    def encoder(self, kind: str, name: str) -> Encoder:
        """Who encodes for this feature type, cache format or member.

        The data version is the module's DATA_VERSION, for all its names or by name; if it states
        none, each version of the distribution counts as another.

        Raises:
            PluginBroken: It states one that is no text or number.
        """
        offer, stated = self.find(kind, name), getattr(self.load(kind, name), "DATA_VERSION", None)
        if isinstance(stated, Mapping):
            stated = stated.get(name)
        if stated is not None and (not isinstance(stated, str | int) or isinstance(stated, bool)):
            raise PluginBroken(
                f"{offer.who} states a DATA_VERSION that is {stated!r}; it should be a text or a "
                "whole number, or a mapping of its names to them. Report this to its authors."
            )
        return Encoder(
            offer.distribution, offer.version, offer.version if stated is None else str(stated)
        )

    def options_model(self, kind: str, name: str, role: str = "", given: Any = None) -> type | None:
        """The pydantic model of the plugin's options, or None if it has none.

        given: what the config says, if the model may depend on it; None: all it could say."""
        if not hasattr(self.load(kind, name), "distcore_options_model"):
            return None
        with _answering(self.find(kind, name), "distcore_options_model"):
            caller = self._of_one("distcore_options_model", self._modules[kind, name])
            model: type | None = caller(kind=kind, name=name, role=role, given=given, plugins=self)
            if model is not None and not hasattr(model, "model_validate"):
                raise TypeError(f"what it gave ({model!r}) is no pydantic model")
            return model

    def validate(self, kind: str, name: str, options: Any, role: str = "") -> Any:
        """The options as an instance of the plugin's model; mistakes raise ConfigError with
        their paths."""
        if (kind, name, role) in self._valid.get(type(options), ()):  # what it gave before
            return options
        model = self.options_model(
            kind, name, role, options if isinstance(options, Mapping) else {}
        )
        if model is None:
            if options:
                where, what = f"{singular(kind)} {name}", f"takes no options, but got {options!r}"
                raise ConfigError([ConfigIssue(0, where, what)])
            return None
        if isinstance(options, model):
            return options
        from distcore_core.config.issues import validate

        valid: Any = validate(model, dict(options or {}), where=f"{singular(kind)} {name}")
        self._valid.setdefault(type(valid), set()).add((kind, name, role))
        return valid

    def check(self, kind: str, name: str, options: Any) -> None:
        """Let the plugin look, before any work, whether what the config names can work here.
        Raises its error."""
        module = self.load(kind, name)
        if not hasattr(module, "distcore_check"):
            return
        valid = self.validate(kind, name, options)
        with _answering(self.find(kind, name), "distcore_check"):
            self._of_one("distcore_check", module)(kind=kind, name=name, options=valid)

    # -------------------------------------------------------------- questions to all

    def detect(self) -> list[Detection]:
        """What the backends see of their surroundings, strongest first; `unasked`: the broken."""
        found, self.unasked = [], {}
        for name in self.names("backends"):
            try:
                module = self.load("backends", name)
                found.append(getattr(module, "distcore_detect", lambda: None)())
            except Exception as error:  # noqa: BLE001 - one that nobody asked for stops no run
                self.unasked[name] = str(error)
        return sorted(filter(None, found), key=lambda each: (-each.priority, each.backend))

    def describe_model(
        self, model: Any, saved: bool
    ) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """How a config names an object from Python, and its weights. UserError: none knows it."""
        for name in self.names("models"):
            with suppress(Exception):  # a broken one may not be the one that is meant
                self.load("models", name)
        found = self.manager.hook.distcore_describe_model(model=model, saved=saved)
        if found is None:
            self._all(MODEL)  # raises what is wrong with a broken one, which may be meant
            raise UserError(
                f"No installed model plugin takes a {type(model).__name__}. "
                "Give a torch.nn.Module, or a config with `model`."
            )
        return found

    def upgrade(self, document: Document) -> list[str]:
        """Let the plugins that know older spellings turn a config into today's, in place; their
        notes for people."""
        answers = [
            self._of_one(UPGRADE.hook, module)(document=document) for module in self._all(UPGRADE)
        ]
        return [note for answer in answers for notes in answer for note in notes]

    def known_elsewhere(self, kind: str, name: str) -> str | None:
        """What a name is that nobody offers here, as a sentence for people; None if no plugin
        knows it."""
        answers = (
            self._of_one("distcore_known_elsewhere", module)(kind=kind, name=name)
            for module in self._all(UPGRADE)
        )
        return next((answer for answer in answers if answer is not None), None)

    def listen(self, extension: object, name: str) -> None:
        """Register an object whose methods are events (`run_started`, …)."""
        self.manager.register(extension, name=name)
        self.manager.check_pending()

    # -------------------------------------------------------------- inside

    def _all(self, role: Role[Any]) -> list[types.ModuleType]:
        """The module of every plugin in a group, each once, in the order of their names."""
        return list(dict.fromkeys(self.load(role.kind, name) for name in self.names(role.kind)))

    def _of_one(self, hook: str, module: types.ModuleType) -> pluggy.HookCaller:
        """A hook that asks this plugin alone; it may implement it with fewer arguments."""
        others = [each for _, each in self.manager.list_name_plugin() if each is not module]
        return self.manager.subset_hook_caller(hook, others)

    def _register(self, offer: Offer, module: types.ModuleType) -> None:
        if self.manager.is_registered(module):
            return
        try:
            self.manager.register(module, name=f"{offer.distribution}:{offer.value}")
            self.manager.check_pending()
        except pluggy.PluginValidationError as error:
            if self.manager.is_registered(module):
                self.manager.unregister(module)
            raise PluginBroken(
                f"{offer.who} implements a hook wrongly: {error}. "
                "Compare it with distcore_core.hooks, or report this to its authors."
            ) from error


@contextmanager
def _answering(offer: Offer, hook: str) -> Iterator[None]:
    """What a plugin's hook raises that is none of our errors is told as the plugin's fault."""
    try:
        yield
    except DistcoreError:
        raise
    except Exception as error:
        raise PluginBroken(
            f"{offer.who} offers {singular(offer.kind)} {offer.name!r}, but its {hook} raised "
            f"{type(error).__name__}: {error}. Report this to its authors."
        ) from error


_of_run: ContextVar[Plugins | None] = ContextVar("distcore_plugins", default=None)


@contextmanager
def run_plugins(plugins: Plugins) -> Iterator[None]:
    """For whoever is given none in this thread, these are the plugins until the block ends."""
    token = _of_run.set(plugins)
    try:
        yield
    finally:
        _of_run.reset(token)


def environment_plugins(block: Collection[str] | None = None) -> Plugins:
    """The plugins for whoever is given none: those of the run under way in this thread, else those
    of this process.

    block: what a config blocks, if it is known; then those of this process without them. They
        are made once."""
    found = _of_run.get() if block is None else None
    environment = os.environ.get("DISTCORE_BLOCK", "")
    return found or _environment_plugins(frozenset(block or ()), tuple(sys.path), environment)


@functools.lru_cache(maxsize=2)
def _environment_plugins(block: frozenset[str], path: tuple[str, ...], blocked: str) -> Plugins:
    return Plugins(block)

"""Find, check and load plugins, one by name; list them all without letting a broken one break anything.

stevedore answers "which one?" (`_load`), pluggy answers "is it well formed, and who else listens?". Reading the
metadata costs a few milliseconds and imports no plugin; only the plugin that is named is ever imported.
"""

from __future__ import annotations

import difflib
import os
import signal
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pluggy

from distcore import hooks
from distcore.contracts import API_VERSION, Detection
from distcore.errors import (
    ConfigError,
    Mistake,
    PluginBroken,
    PluginConflict,
    PluginIncompatible,
    PluginNotFound,
    UserError,
)

KINDS: tuple[str, ...] = tuple(hooks.FACTORIES)

INSTALL_HINTS: Mapping[tuple[str, str], str] = {
    ("backends", "local"): "distcore-local",
    ("backends", "ray"): "distcore-ray",
    ("backends", "horovod"): "distcore-horovod",
    ("processors", "local"): "distcore-local",
    ("processors", "dask"): "distcore-dask",
    ("processors", "modin"): "distcore-modin",
    ("caches", "parquet"): "distcore-parquet",
    ("caches", "hdf5"): "distcore-hdf5",
    ("caches", "tfrecord"): "distcore-tfrecord",
    ("loaders", "packed"): "distcore-local",
    ("models", "tabular"): "distcore-tabular",
    ("models", "module"): "distcore-tabular",
    ("trainers", "local"): "distcore-local",
    ("trainers", "ddp"): "distcore-local",
    ("trainers", "horovod"): "distcore-horovod",
    ("executors", "local"): "distcore-optuna",
    ("executors", "optuna"): "distcore-optuna",
    ("executors", "ray"): "distcore-ray",
    **{("features", name): "distcore-tabular" for name in ("number", "binary", "category", "text", "set")},
}
"""The one place where core names plugins: what to `pip install` for a name that nobody offers."""

DEFAULTS: Mapping[str, str] = {"backends": "local", "models": "tabular", "caches": "parquet", "executors": "local"}
"""What a config means that names none; a backend names its own defaults for processor, loader and trainer."""

IMPORT_SECONDS = 60.0
"""How long a plugin that the config asked for may take to import before the run stops."""


@dataclass(frozen=True)
class Offer:
    """One entry point: who offers `name` in the group `distcore.<kind>`."""

    kind: str
    name: str
    value: str
    distribution: str
    version: str


def blocked_by_environment() -> tuple[str, ...]:
    """Names in DISTCORE_BLOCK (comma-separated): a plugin's name, its `kind:name`, or its distribution."""
    return tuple(name.strip() for name in os.environ.get("DISTCORE_BLOCK", "").split(",") if name.strip())


class Plugins:
    """The installed plugins of this process.

    block: what the config's `plugins.block` names, added to DISTCORE_BLOCK.
    """

    def __init__(self, block: Iterable[str] = ()) -> None:
        self.block = frozenset(block) | frozenset(blocked_by_environment())
        self.manager = pluggy.PluginManager(hooks.PROJECT)
        self.manager.add_hookspecs(hooks)
        self._modules: dict[tuple[str, str], types.ModuleType] = {}
        self._offers: dict[str, list[Offer]] | None = None

    # -------------------------------------------------------------- what is there

    def offers(self, kind: str) -> list[Offer]:
        """Every entry point of the kind that is not blocked, from metadata alone, which is read once."""
        if self._offers is None:
            self._offers = _every_offer()
        return [offer for offer in self._offers[kind] if not self.is_blocked(offer)]

    def is_blocked(self, offer: Offer) -> bool:
        return bool(self.block & {offer.name, f"{offer.kind}:{offer.name}", offer.distribution})

    def names(self, kind: str) -> list[str]:
        return sorted({offer.name for offer in self.offers(kind)})

    # -------------------------------------------------------------- one by name

    def find(self, kind: str, name: str) -> Offer:
        """The one distribution that offers the name, without importing it."""
        matches = [offer for offer in self.offers(kind) if offer.name == name]
        if not matches:
            raise self._not_found(kind, name)
        if len(matches) > 1:
            who = " and ".join(f"{offer.distribution} {offer.version}" for offer in matches)
            raise PluginConflict(
                f"Two distributions offer {_singular(kind)} {name!r}: {who}. "
                f"Uninstall one, or block it: DISTCORE_BLOCK={matches[-1].distribution}."
            )
        return matches[0]

    def load(self, kind: str, name: str) -> types.ModuleType:
        """Import, check and register the plugin that offers the name."""
        if (kind, name) not in self._modules:
            offer = self.find(kind, name)
            module = _load(offer)
            check_api(offer, module)
            self._register(offer, module)
            self._modules[kind, name] = module
        return self._modules[kind, name]

    def make(self, kind: str, name: str, options: Any = None, **context: Any) -> Any:
        """Call the plugin's factory. options: a mapping, validated by its own model, or an instance of that model."""
        offer = self.find(kind, name)
        module = self.load(kind, name)
        if kind != "commands":
            context["options"] = self.validate(kind, name, options, role=context.get("role", ""))
        factory = getattr(self.manager.hook, hooks.FACTORIES[kind])
        # Several plugins may be registered; the one that the entry point names is asked alone, with every extension.
        others = [each for each in self.manager.get_plugins() if each is not module and _is_factory_only(each)]
        caller = self.manager.subset_hook_caller(factory.name, others)
        made = caller(name=name, **context)
        if made is None:
            raise PluginBroken(
                f"{offer.distribution} {offer.version} offers {_singular(kind)} {name!r}, "
                f"but its {factory.name} answered None. Report this to its authors."
            )
        return made

    def options_model(self, kind: str, name: str, role: str = "") -> type | None:
        """The pydantic model of the plugin's options, or None where it has none."""
        implementation = getattr(self.load(kind, name), "distcore_options_model", None)
        if implementation is None:
            return None
        module = self._modules[kind, name]
        others = [each for each in self.manager.get_plugins() if each is not module]
        caller = self.manager.subset_hook_caller("distcore_options_model", others)
        return caller(kind=kind, name=name, role=role)

    def validate(self, kind: str, name: str, options: Any, role: str = "") -> Any:
        """The options as an instance of the plugin's model; mistakes raise ConfigError with their paths."""
        model = self.options_model(kind, name, role)
        if model is None:
            if options:
                raise ConfigError([Mistake(0, f"{_singular(kind)} {name}", f"takes no options, but got {options!r}")])
            return None
        if isinstance(options, model):
            return options
        from distcore.config.mistakes import validate

        return validate(model, dict(options or {}), where=f"{_singular(kind)} {name}")

    def check(self, kind: str, name: str, options: Any) -> None:
        """Let the plugin look, before any work, whether what the config names can work here. Raises its error."""
        check = getattr(self.load(kind, name), "distcore_check", None)
        if check is not None:
            check(kind=kind, name=name, options=self.validate(kind, name, options))

    # -------------------------------------------------------------- questions to all

    def detect(self) -> list[Detection]:
        """What the backends see of their surroundings, strongest first. A broken backend is passed over."""
        found = []
        for name in self.names("backends"):
            try:
                answer = getattr(self.load("backends", name), "distcore_detect", lambda: None)()
            except Exception:  # noqa: BLE001 - a backend that nobody asked for must not stop the run
                continue
            if answer is not None:
                found.append(answer)
        return sorted(found, key=lambda each: (-each.priority, each.backend))

    def describe_model(self, model: Any, saved: bool) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """How a config names an object given from Python, and its weights. Raises UserError if no plugin knows it."""
        for name in self.names("models"):
            self.load("models", name)
        found = self.manager.hook.distcore_describe_model(model=model, saved=saved)
        if found is None:
            raise UserError(
                f"No installed model plugin takes a {type(model).__name__}. "
                "Give a torch.nn.Module, or a config with `model`."
            )
        return found

    def listen(self, extension: object, name: str) -> None:
        """Register an object whose methods are events (`run_started`, …)."""
        self.manager.register(extension, name=name)
        self.manager.check_pending()

    # -------------------------------------------------------------- inside

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
                f"{offer.distribution} {offer.version} implements a hook wrongly: {error}. "
                "Compare it with distcore.hooks, or report this to its authors."
            ) from error

    def _not_found(self, kind: str, name: str) -> PluginNotFound:
        role, installed = _singular(kind), self.names(kind)
        parts = [f"No installed plugin offers {role} {name!r}."]
        blocked = any(offer.name == name for offer in all_offers(kind))
        if blocked:
            parts = [f"{role.capitalize()} {name!r} is installed but blocked (plugins.block or DISTCORE_BLOCK)."]
        near = difflib.get_close_matches(name, installed, n=2)
        if near:
            parts.append(f"Did you mean {' or '.join(map(repr, near))}?")
        parts.append(f"Installed: {', '.join(installed) or 'none'}.")
        if (kind, name) in INSTALL_HINTS and len(parts) < 4:
            parts.append(f"To get it: pip install {INSTALL_HINTS[kind, name]}")
        elif not near and not blocked:
            parts.append("Install the distribution that offers it, or name one that is installed.")
        return PluginNotFound(" ".join(parts))


def all_offers(kind: str) -> list[Offer]:
    """Every entry point of the group `distcore.<kind>`, blocked or not; a distribution found twice on sys.path once."""
    return _every_offer()[kind]


def _every_offer() -> dict[str, list[Offer]]:
    """The offers of every kind, in one pass over the metadata of what is installed."""
    entries, found = metadata.entry_points(), {}
    for kind in KINDS:
        seen: dict[tuple[str, str, str], Offer] = {}
        for entry in entries.select(group=f"distcore.{kind}"):
            name = entry.dist.name if entry.dist else "unknown"
            version = entry.dist.version if entry.dist else "?"
            seen.setdefault((entry.name, name, entry.value), Offer(kind, entry.name, entry.value, name, version))
        found[kind] = sorted(seen.values(), key=lambda offer: (offer.name, offer.distribution))
    return found


def check_api(offer: Offer, module: types.ModuleType) -> None:
    """Refuse a plugin written for another major version, or for a newer minor one than this core."""
    stated = getattr(module, "DISTCORE_API", None)
    who = f"{offer.distribution} {offer.version}"
    if not (isinstance(stated, tuple) and len(stated) == 2 and all(isinstance(part, int) for part in stated)):
        raise PluginIncompatible(
            f"{who} does not state the API it was written for: {offer.value} needs DISTCORE_API = {API_VERSION}."
        )
    if stated[0] < API_VERSION[0]:
        raise PluginIncompatible(
            f"{who} was written for distcore API {_dotted(stated)}; this core has {_dotted(API_VERSION)}. "
            f"Upgrade the plugin: pip install --upgrade {offer.distribution}"
        )
    if stated > API_VERSION:
        raise PluginIncompatible(
            f"{who} was written for distcore API {_dotted(stated)}; this core has {_dotted(API_VERSION)}. "
            "Upgrade the core: pip install --upgrade distcore"
        )


def _load(offer: Offer) -> types.ModuleType:
    """Import the plugin's module through stevedore; whatever goes wrong becomes PluginBroken."""
    # stevedore logs every failure itself; the error we raise says more.
    import logging

    from stevedore import DriverManager

    class OneOffer(DriverManager):
        """Looks at this offer's entry point alone: a blocked namesake must not be imported, and stevedore's cache on
        disk can miss an edited entry point for two minutes."""

        def list_entry_points(self) -> list[metadata.EntryPoint]:
            return [metadata.EntryPoint(offer.name, offer.value, f"distcore.{offer.kind}")]

    logging.getLogger("stevedore").setLevel(logging.CRITICAL)
    try:
        with _deadline(offer):
            found: Any = OneOffer(
                f"distcore.{offer.kind}",
                offer.name,
                invoke_on_load=False,
                on_load_failure_callback=_reraise,
                warn_on_missing_entrypoint=False,
            ).driver
    except (Exception, SystemExit) as error:
        raise PluginBroken(
            f"{offer.distribution} {offer.version} offers {_singular(offer.kind)} {offer.name!r}, but loading "
            f"{offer.value} failed: {type(error).__name__}: {error}. Reinstall it, or block it: "
            f"DISTCORE_BLOCK={offer.distribution}."
        ) from error
    module: types.ModuleType = found
    return module


def _reraise(manager: Any, entry_point: Any, error: BaseException) -> None:
    raise error


@contextmanager
def _deadline(offer: Offer) -> Iterator[None]:
    """Raise in the main thread when an import takes longer than IMPORT_SECONDS (only where signals work)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise TimeoutError(f"importing {offer.value} took longer than {IMPORT_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, IMPORT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_factory_only(plugin: object) -> bool:
    """A registered plugin module, as opposed to an extension object that listens or wraps."""
    return isinstance(plugin, types.ModuleType)


def _singular(kind: str) -> str:
    return {"caches": "cache format"}.get(kind, kind.removesuffix("s"))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))

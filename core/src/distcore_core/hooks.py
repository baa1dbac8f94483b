"""The hook specs: every question that core asks a plugin; `events` has what it tells one.

A plugin is a light module that an entry point names. It states the contracts it was written for and
implements some of these functions:

    from distcore_core.plugin import hookimpl

    DISTCORE_API = (1, 0)

    @hookimpl
    def distcore_make_trainer(name, options):
        if name == "mine":
            from mine.trainer import MyTrainer      # heavy imports wait until here
            return MyTrainer(options)

A factory answers None for a name that is not its own. An implementation may take fewer arguments
than the spec shows, so arguments can be added here without breaking anyone. There is no hook per
batch: the training loop calls none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distcore_core import contracts
    from distcore_core.config.document import Document

PROJECT = "distcore"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# ------------------------------------------------------------------ factories, one for each role


@hookspec(firstresult=True)
def distcore_make_backend(name: str, options: Any) -> contracts.Backend | None:
    """Make the backend `name`.

    Args:
        name: Here and below: what the config says; None is the answer to any but this plugin's.
        options: Here and below: an instance of its options model; None if it has none."""


@hookspec(firstresult=True)
def distcore_make_processor(name: str, options: Any) -> contracts.Processor | None:
    """Make the processor `name`."""


@hookspec(firstresult=True)
def distcore_make_cache(name: str, options: Any) -> contracts.CacheFormat | None:
    """Make the cache format `name`."""


@hookspec(firstresult=True)
def distcore_make_loader(
    name: str, options: Any, request: contracts.LoadRequest
) -> contracts.Loader | None:
    """Make the loader `name`.

    Args:
        request: What to load: one split, for one rank."""


@hookspec(firstresult=True)
def distcore_make_feature(
    name: str, column: str, role: str, options: Any, plugins: Any
) -> contracts.Feature | None:
    """Make the feature of type `name`.

    Args:
        column: Whose.
        role: "input" or "output".
        plugins: The `Plugins` that make it."""


@hookspec(firstresult=True)
def distcore_make_model(name: str, options: Any, plugins: Any) -> contracts.Model | None:
    """Make the model `name`.

    Args:
        plugins: The `Plugins` that make it."""


@hookspec(firstresult=True)
def distcore_make_trainer(name: str, options: Any) -> contracts.Trainer | None:
    """Make the trainer `name`."""


@hookspec(firstresult=True)
def distcore_make_executor(name: str, options: Any) -> contracts.Executor | None:
    """Make the executor `name`, which runs the trials of `distcore hyperopt`."""


@hookspec(firstresult=True)
def distcore_make_extension(name: str, options: Any) -> Any | None:
    """Make the extension `name`: an object whose methods, marked with `hookimpl`, are events below.

    Made once in the process that the user started, and once more in rank 0 of a group, which is a
    process of its own: that one hears `epoch_finished` and `checkpoint_saved` alone. A listener
    that raises is told in a warning, and the run goes on. A method may also wrap a factory
    (`hookimpl(wrapper=True)`): in these two, so not in other ranks, tasks and trials."""


@hookspec(firstresult=True)
def distcore_make_command(name: str) -> contracts.Command | None:
    """Make the command `name`: an object with `help`, `add_arguments(parser)` and
    `run(arguments) -> int`."""


@hookspec(firstresult=True)
def distcore_make_member(
    kind: str, name: str, options: Any, context: Mapping[str, Any]
) -> Any | None:
    """Make `name` of a role that a toolkit or a plugin declares, such as `sources` or
    `tabular.encoders`.

    Args:
        kind: The role.
        context: What the role gives its members beside the options; docs/plugins.md lists the
            roles."""


# ------------------------------------------------------------------ questions


@hookspec(firstresult=True)
def distcore_options_model(
    kind: str, name: str, role: str, given: Any, plugins: Any
) -> type | None:
    """The options of `name` in the group `kind`.

    Args:
        role: "input" or "output" for a feature, "" for everything else.
        given, plugins: As for `distcore_config_section`.

    Returns:
        A pydantic model with extra="forbid"; None: it has none."""


@hookspec(firstresult=True)
def distcore_describe_model(
    model: Any, saved: bool
) -> tuple[dict[str, Any], Mapping[str, Any] | None] | None:
    """Say how a config names an object given from Python (`distcore.train(…, model=Net)`).

    Args:
        saved: The model is to be saved, and so must be found again.

    Returns:
        (the `model` section, weights to start from or None), or None for an object that is not of
        this plugin's."""


@hookspec(firstresult=True)
def distcore_config_section(name: str, given: Any, plugins: Any) -> type | None:
    """The options of the config's section `name` at the top level, which this plugin carries out.
    Asked of the plugin that offers the name in the group `distcore.sections`.

    Args:
        given: What the config says there, for a section that names members of a role
            (`distcore_data.members.with_members`); None: a schema is made, of all that could be
            said.
        plugins: The `Plugins` that members are found with.

    Returns:
        A pydantic model with extra="forbid".

    The app itself reads what `trainer`, `preprocessing` and `hyperopt` say; a section of another
    name is validated and stands in the config that extensions, trainers and other plugins are
    given, with the options that were set."""


@hookspec
def distcore_upgrade_config(document: Document) -> Sequence[str] | None:
    """Rewrite older spellings of a config into today's, before anything else reads it. Asked of the
    plugins in the group `distcore.upgrades`, in the order of their names.

    Change `document.values` in place, and `document.source_map` with it, so that a mistake is still
    told by its line: `distcore_core.config.upgrade.Upgrade` does both. What is already in today's
    spelling must stay as it is.

    Returns:
        A note for people on each kind of change; None for no change.
    """


@hookspec(firstresult=True)
def distcore_known_elsewhere(kind: str, name: str) -> str | None:
    """Say what a name is that no installed plugin offers, such as a part of the program whose
    configs are upgraded. Asked of the plugins in the group `distcore.upgrades`.

    Args:
        kind, name: The group and the name.

    Returns:
        A sentence; None if it is not known."""


@hookspec
def distcore_detect() -> contracts.Detection | None:
    """Say whether this process is inside, or points at, this plugin's backend.

    Static and quick (milliseconds): look at the environment and at files, import no engine,
    start and join nothing."""


@hookspec
def distcore_check(kind: str, name: str, options: Any) -> None:
    """Look whether `name` can work here. Called for the processor, the loader, the trainer and the
    model of a run, before any work; must be quick.

    Args:
        kind, name: The group and the name, one that this plugin offers.

    Raises:
        UserError: It cannot; says the way out."""


@hookspec
def distcore_diagnose() -> list[tuple[str, bool, str]] | None:
    """Check this plugin's parts for `distcore doctor`.

    Returns:
        (what was checked, whether it is well, what was found) of each."""

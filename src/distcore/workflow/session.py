"""What every command sets up before its work and takes down after it: config, plugins, backend,
extensions, folder."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from distcore.workflow import profile
from distcore.workflow.backend_choice import choose_backend, make_backend
from distcore.workflow.limited_gpus import check_gpus, limited_gpus
from distcore.workflow.progress_view import ProgressView
from distcore_core.contracts import (
    JSON,
    LOADER,
    MODEL,
    PROCESSOR,
    TRAINER,
    Backend,
    PluginRef,
    Role,
)
from distcore_core.errors import ConfigError, UserError
from distcore_core.progress import Progress
from distcore_core.registry.listening import listening
from distcore_core.registry.manager import Plugins
from distcore_data.blame import blame
from distcore_data.features import Features
from distcore_data.temporaries import sweep_system
from distcore_data.threads import patient_threads
from distcore_torch.guests import put_back
from distcore_torch.training.launched import is_other_rank

if TYPE_CHECKING:
    from distcore.config import RunConfig
    from distcore_data.stores.run_sync import Mirror

log = logging.getLogger("distcore")
R = TypeVar("R")


@dataclass
class Session:
    """One command under way.

    reason: why this backend. directory: the experiment's folder, if there is one. mirror: the
    bucket that it is copied to, if results go to one. built_cache: no cache was there.
    former: `model_told` of the run that is gone on with, as it was. whole: the results are written.
    closing: what ends with the command, the use of its cache.
    """

    command: str
    config: RunConfig
    plugins: Plugins
    backend: Backend
    backend_name: str
    reason: str
    features: Features
    progress: Progress
    directory: Path | None = None
    mirror: Mirror | None = None
    built_cache: bool = False
    former: bytes | None = None
    whole: bool = False
    closing: ExitStack = field(default_factory=ExitStack)

    @property
    def home(self) -> Path | str | None:
        """Where the results are, for people."""
        return self.mirror.url if self.mirror is not None else self.directory

    def started(self) -> None:
        """Tell who listens that the work begins."""
        tell_started(self, self.config.as_json())

    def results_written(self) -> None:
        """Tell who listens that the folder of results is whole."""
        assert self.directory is not None
        self.whole = True
        self.plugins.manager.hook.results_written(command=self.command, directory=self.directory)

    def check(self) -> None:
        """Let the plugins that this command needs say, before any work, what stands against it
        here."""
        roles: tuple[Role[Any], ...] = (
            (PROCESSOR,) if self.command == "preprocess" else (PROCESSOR, LOADER, TRAINER)
        )
        for reference in map(self.reference, roles):
            self.plugins.check(reference.kind, reference.name, reference.options)
        if self.command != "preprocess":
            self.check_model()

    def check_model(self) -> None:
        """As `check`, of the model. One that is searched may get options that it needs by and
        by."""
        model = self.config.model
        if self.command == "hyperopt" or (self.command == "plan" and self.config.hyperopt):
            return
        self.plugins.check(MODEL.kind, model.type, model.options)

    def reference(self, role: Role[Any]) -> PluginRef:
        """The processor, loader or trainer that the config names, else the backend's default."""
        named = self.config.backend.named(role)
        if named is not None:
            return PluginRef(kind=role.kind, name=named.type, options=named.options)
        return PluginRef(kind=role.kind, name=self.backend.defaults[str(role.section)], options={})

    def make(self, role: Role[R], **context: Any) -> R:
        """The processor, loader or trainer of this command."""
        reference = self.reference(role)
        return self.plugins.make(role, reference.name, reference.options, **context)


@contextmanager
def open_session(
    command: str,
    config: Any,
    *,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: Any = None,
    view: str = "none",
    own: Sequence[str] = (),
) -> Iterator[Session]:
    """Read and resolve the config, choose the backend, let extensions listen; close everything at
    the end.

    config: path, mapping or RunConfig. gpus: "0,1", -1 for none, or None for whatever is there.
    view: how to draw progress ("auto", "bars", "lines", "none"). own: extensions that the command
    itself brings; those that are not installed are left out."""
    _refuse_to_begin_again()
    patient_threads()
    with limited_gpus(gpus):
        session = resolved_session(command, config, backend=backend, random_seed=random_seed)
        for note in session.config.notes:
            log.info("%s: %s", session.config.source, note)
        with _opened(session, gpus, view, own):
            yield session


def _refuse_to_begin_again() -> None:
    """Raise UserError in a worker that is about to begin and reads the user's program for that,
    as Python has every process do that another one starts: it would train once more."""
    module = sys.modules.get("multiprocessing.process")
    if module is not None and getattr(module.current_process(), "_inheriting", False):
        raise UserError(
            "A worker reads the program that started it again, and that calls distcore once more. "
            'Put what the program does under `if __name__ == "__main__":`.'
        )


@contextmanager
def _opened(session: Session, gpus: Any, view: str, own: Sequence[str]) -> Iterator[None]:
    asked = [each.as_json() for each in session.config.extensions]
    left = [each for each in own if each not in {one["type"] for one in asked}]
    brought = [{"type": each} for each in left if each in session.plugins.names("extensions")]
    try:
        with under_way(session, asked, view, brought):
            check_gpus(gpus, session.backend)
            session.check()
            with session.closing:
                yield
    except ConfigError as error:
        from distcore.config.run_config import located

        raise located(error, session.config) from error


class UnderWay(profile.Profiled, Protocol):
    """What every command has: a `Session`, or the `ModelSession` of one that works on a saved
    model."""

    command: str
    backend: Backend

    @property
    def plugins(self) -> Plugins: ...


def tell_started(session: UnderWay, config: JSON) -> None:
    """Tell who listens that the work begins. config: as a file would have it."""
    session.plugins.manager.hook.run_started(
        command=session.command,
        config=config,
        directory=session.directory,
        address=session.mirror.url if session.mirror is not None else None,
    )


@contextmanager
def under_way(
    session: UnderWay,
    extensions: Sequence[Mapping[str, Any]],
    view: str,
    brought: Sequence[Mapping[str, Any]] = (),
) -> Iterator[None]:
    """Draw the session's progress, let the extensions listen and tell them how it ended; close the
    backend.

    brought: extensions that the command adds to those of the config."""
    plugins = session.plugins
    if is_other_rank():  # under torchrun each does what rank 0 does: once is enough
        extensions, brought, view = (), (), "none"
    sweep_system()
    error: BaseException | None = None
    try:
        profile.seen(session)
        # The config's innermost: training compares what listens with them.
        with listening(brought, plugins, put_back), listening(extensions, plugins, put_back):
            try:
                with ProgressView(session.progress, view):
                    yield
                    session.progress.end()
            except BaseException as caught:
                blame(caught, plugins)
                error = caught
                raise
            finally:
                session.progress.end()
                plugins.manager.hook.run_finished(
                    command=session.command, directory=session.directory, error=error
                )
    finally:
        session.backend.close()


def resolved_session(
    command: str, config: Any, *, backend: str | None = None, random_seed: int | None = None
) -> Session:
    """Config, plugins, backend and features of a command, and nothing begun: no extension is made,
    nobody is told.

    The caller closes the backend."""
    from distcore.config import completed, load_config, resolve

    read = load_config(config, backend=backend, random_seed=random_seed)
    plugins = Plugins(block=read.plugins_block)
    name, reason = choose_backend(read.backend.type, plugins)
    resolved = resolve(read, plugins, backend=name)
    made = make_backend(plugins, name, resolved.backend.options)
    try:
        # A section such as `trainer: {num_workers: 4}` names no type: it is the backend's
        # default's.
        resolved = completed(resolved, plugins, made.defaults, name)
        features = Features.of(resolved.as_json(), plugins)
    except BaseException:
        made.close()
        raise
    return Session(command, resolved, plugins, made, name, reason, features, Progress())

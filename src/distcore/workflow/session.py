"""What every command sets up before its work and takes down after it: config, plugins, backend,
extensions, folder."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from distcore.workflow import profile
from distcore.workflow.progress_view import ProgressView
from distcore_core.contracts import (
    BACKEND,
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
from distcore_core.registry.index import DEFAULTS
from distcore_core.registry.listening import listening
from distcore_core.registry.manager import Plugins
from distcore_data.blame import blame
from distcore_data.features import Features
from distcore_data.temporaries import sweep_system
from distcore_data.threads import patient_threads
from distcore_torch.guests import put_back
from distcore_torch.training.launched import is_other_rank, launched_apart, tasks_of_srun

if TYPE_CHECKING:
    from distcore.config import RunConfig
    from distcore_data.stores.run_sync import Mirror

log = logging.getLogger("distcore")
R = TypeVar("R")

VISIBLE = "CUDA_VISIBLE_DEVICES"


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
        self.plugins.manager.hook.run_started(
            command=self.command,
            config=self.config.as_json(),
            directory=self.directory,
            address=self.mirror.url if self.mirror is not None else None,
        )

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


def make_backend(plugins: Plugins, name: str, options: Any) -> Backend:
    """The backend. A launcher's process that another one leads does its part, and ends; it comes
    back from there only if it has to lead from now on, because the one that led is lost."""
    made: Backend = plugins.make(BACKEND, name, options)
    made.follow()
    tasks = tasks_of_srun()
    if tasks > 1 and (name == "ray" or not made.distributed):  # else it joined them, presumably
        log.warning(
            "srun started %d tasks, and the backend `%s` makes a run of its own of each. For one "
            "run, start one task (srun -n 1), or a torchrun on each machine.",
            tasks,
            name,
        )
    return made


JOINING, ITS_PRIORITY = "horovod", 80
"""The backend that joins the processes of a launcher, and how strongly it says that it does."""


def choose_backend(named: str | None, plugins: Plugins) -> tuple[str, str]:
    """The backend's name and why: the config (or the command line) names it, it was detected, or
    nothing else was.

    Raises UserError where each of a launcher's processes would make a run of its own, because no
    backend joins them."""
    if named:
        return named, "named in the config or on the command line"
    found = plugins.detect()
    broken = [
        f"The backend {name} cannot be asked whether it is meant here: {error.removesuffix('.')}."
        for name, error in plugins.unasked.items()
    ]
    lost = JOINING in plugins.unasked  # and whatever speaks no louder would not join them
    unjoined = not found or (lost and found[0].priority <= ITS_PRIORITY)
    if unjoined and (apart := launched_apart()) is not None:
        raise UserError(
            f"{apart[0]} started {apart[1]} processes, and no backend joins them: each would "
            f"make a run of its own. {''.join(f'{each} ' for each in broken)}For one run, have "
            "distcore-horovod installed (`distcore plugins` says whether it can be used); for "
            "one in each process, give --backend local."
        )
    for each in broken:
        log.warning("%s", each)
    if found:
        return found[0].backend, found[0].reason
    return DEFAULTS["backends"], "no cluster and no launcher was detected"


_gpus_lock = threading.Lock()
_gpu_blocks: list[tuple[int, str]] = []  # of each that is open: its thread, and the GPUs it names
_gpus_before: str | None = None


def _in_a_fork() -> None:
    """Of the parent's threads a child has the one that forked, and no other is at work in it. What
    they hide stays hidden from it."""
    global _gpus_lock
    _gpus_lock = threading.Lock()
    _gpu_blocks[:] = [each for each in _gpu_blocks if each[0] == threading.get_ident()]


os.register_at_fork(after_in_child=_in_a_fork)


@contextmanager
def limited_gpus(gpus: Any) -> Iterator[None]:
    """Hide all GPUs but the named ones from this process and its children until the block ends, in
    whichever thread the last such block does; before torch looks.

    Raises UserError if another thread's block hides others: the environment is the process's."""
    global _gpus_before
    if gpus is None:
        yield
        return
    block = threading.get_ident(), _named_gpus(gpus)
    with _gpus_lock:
        if any(thread != block[0] and named != block[1] for thread, named in _gpu_blocks):
            raise UserError(
                f"--gpus {block[1] or '-1'}: this process is at work with others. Give all calls "
                "that run beside one another the same, or each a process of its own."
            )
        if not _gpu_blocks:
            _gpus_before = os.environ.get(VISIBLE)
        _gpu_blocks.append(block)
        os.environ[VISIBLE] = block[1]
    try:
        yield
    finally:
        with _gpus_lock:
            _gpu_blocks[:] = [each for each in _gpu_blocks if each is not block]
            before = _gpu_blocks[-1][1] if _gpu_blocks else _gpus_before
            if before is None:
                os.environ.pop(VISIBLE, None)
            else:
                os.environ[VISIBLE] = before


def _named_gpus(gpus: Any) -> str:
    text = ",".join(map(str, gpus)) if isinstance(gpus, list | tuple) else str(gpus)
    if not all(re.fullmatch(r"\s*-?[0-9]+\s*", part) for part in text.split(",")):
        raise UserError(
            f"--gpus {text!r} is not a list of GPU numbers. Give numbers such as 0 or 0,1, or -1 "
            "for none."
        )
    return "" if text.strip() == "-1" else text


def check_gpus(gpus: Any, backend: Backend) -> None:
    """Raise UserError if GPUs were named (`limited_gpus`) that the backend does not see."""
    named = [each for each in os.environ[VISIBLE].split(",") if each] if gpus is not None else []
    seen = backend.resources().gpus if named else 0
    if seen < len(named):
        can = f"only {seen} of these {len(named)} can" if seen else "no GPU can"
        raise UserError(
            f"--gpus {','.join(named)}: {can} be used here. "
            "See `distcore doctor`; give -1 for none, or leave it out for all there are."
        )

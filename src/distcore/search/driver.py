"""A search under way: what is refused beforehand, and who is told of each trial."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from distcore.search.checks import (
    check_objective,
    check_split,
    tell_of_other_losses,
    tell_what_is_kept,
)
from distcore.search.folders import CHANGED, SECTION, refuse_another
from distcore.search.job import asked_for, executor_of, given_by, job_of, workers_of
from distcore.search.outcome import SearchOutcome, collect, conclude, in_words, raise_without_scores
from distcore.search.section import Section, check_candidates
from distcore.search.trial import TrialWork
from distcore.workflow import results
from distcore.workflow.prepare import (
    check_predictions,
    data_part,
    key_of_these,
    places,
    prepare,
    root_of,
    tell_constant_targets,
)
from distcore.workflow.skips import SKIP_PROCESSED_INPUT
from distcore_core.contracts import JSON, TRAINER, SearchJob
from distcore_core.errors import ConfigError, DistcoreError, Stopped, TrainingError, UserError
from distcore_data import os_errors
from distcore_data.cache.manifest import digest_of
from distcore_data.dataset import Data
from distcore_data.features import Features
from distcore_data.figures import several
from distcore_data.os_errors import is_of_the_system
from distcore_data.run_files import SEARCH
from distcore_data.seals import read_sealed
from distcore_search.objective import Objective
from distcore_search.records import ENDED, begin_again, read_record
from distcore_torch.signals import signal_of

if TYPE_CHECKING:
    from distcore.workflow.session import Session
    from distcore_data.cache import Cache

log = logging.getLogger("distcore")


class Search:
    """A search under way. Making it refuses whatever can be refused without touching data or
    disk."""

    def __init__(
        self,
        section: Section,
        session: Session,
        data: Data,
        skip: Collection[str],
    ) -> None:
        self.section, self.session, self.data, self.skip = section, session, data, skip
        self.objective = Objective.of(section.options)
        # Not beside the config, where it would win over a random_seed that is searched.
        self.values = {**section.values, "random_seed": session.config.random_seed}
        self.configs = check_candidates(
            replace(section, values=self.values),
            session.plugins,
            session.backend_name,
            session.backend.defaults,
        )
        self._check_room()
        self.executor, self.options = executor_of(section, session)
        check_split(
            section,
            self.objective,
            all(each.trainer.evaluate_training_set for each in self.configs),
            self.options.scheduler.type,
        )
        tell_what_is_kept(self.objective, [each.trainer for each in self.configs])
        tell_of_other_losses(self.objective, self.configs)
        parts = {
            digest_of(data_part(each, Features.of(each.as_json(), session.plugins)))
            for each in self.configs
        }
        self.shared = len(parts) == 1

    def _check_room(self) -> None:
        """Raise ConfigError if trials would not all ask for the same processes and resources."""
        session = self.session
        for config in self.configs:
            named = config.backend.named(TRAINER)
            if named is None:
                continue
            trainer = session.plugins.make(TRAINER, named.type, named.options)
            if asked_for(trainer, session.backend) != workers_of(session):
                message = (
                    "the options of backend.trainer that are searched change the workers, threads "
                    "or GPUs of a trial, for all of which room is kept alike. Set those in "
                    "`backend`"
                )
                raise ConfigError(
                    [self.section.issue(("parameters",), message)], self.section.source
                )

    def run(self, directory: Path, resume: bool, shown: Path) -> SearchOutcome:
        """The search in a folder of an absolute path, for trials that run elsewhere. shown: as it
        was given, for messages."""
        session, section = self.session, self.section
        session.directory = directory
        before = read_sealed(directory / SEARCH, CHANGED) if resume else None
        given: JSON | None = self._given()
        if before is not None and before.get("given") is None:  # see `SearchWork.given`
            given = None
        read, written = places(session, self.data, directory)
        work = TrialWork(
            config=self.values,
            parameters=dict(section.written["parameters"]),
            objective=self.objective,
            data=self.data,
            directory=directory,
            places=({} if self.shared else read, written),  # of a cache they share they read that
            backend=session.backend_name,  # a trial's process may detect another one
            skip=frozenset(self.skip),
            given=given,
        )
        job = job_of(section, self.options, session, work, resume)
        planned = self.executor.plan(job, session.backend)
        self._take_first()
        mine = {**self._described(), "given": given}

        def note_key(key: str) -> None:
            mine["cache"] = key
            if before is not None:  # before a cache of other data is built
                refuse_another(before, mine, directory)

        if self.shared:
            work = replace(work, cache=self._cache(note_key), data=self.data.hollow())
            job = replace(job, work=work)
        else:
            note_key(key_of_these(session, self.data))
            self._check_by_the_first()
            log.info(
                "Some parameters change the preprocessing, so each of its variants has a cache of "
                "its own%s.",
                ", which stays although none was to be saved: `distcore cache prune --unused "
                f"{self._where_caches_are()}` removes it and what else no run uses"
                if SKIP_PROCESSED_INPUT in self.skip
                else "",
            )
        results.write_json(directory / SEARCH, mine)
        session.started()
        for each in (*section.notes, *self.options.notes(), *planned.get("notes", ())):
            log.info("%s", each)
        if given:
            said = " and ".join(f"trainer.{name}: {value}" for name, value in given.items())
            log.info("Under its scheduler each trial has %s, for the config names none.", said)
        log.info(
            "%s: %s the %s; %s, %d at once, chosen by %s, run by the executor %s.",
            shown,
            self.objective.goal,
            self.objective,
            several(job.trials, "trial"),
            planned["at_once"],
            planned["algorithm"],
            self.executor.name,
        )
        return self._run_trials(job, work, shown)

    def _where_caches_are(self) -> str:
        """For `distcore cache`: a bucket may open with the config's credentials alone."""
        backend = self.session.config.backend
        if backend.cache_dir is not None and backend.cache_credentials is not None:
            return "--config …"
        return f"--cache_dir {shlex.quote(root_of(self.session, self.data))}"

    def _take_first(self) -> None:
        """Have the session go by the first of the configs that could be tried."""
        plain = self.session.config
        self.session.config = replace(
            self.configs[0], backend=plain.backend, plugins_block=plain.plugins_block
        )
        self.session.features = Features.of(self.session.config.as_json(), self.session.plugins)

    def _cache(self, check: Callable[[str], None]) -> Cache:
        """The one cache of all trials; the metric is checked against what it holds. check: see
        `prepare`."""
        cache = prepare(self.session, self.data, check)
        check_predictions(self.session, cache)
        tell_constant_targets(self.session, cache)
        self._check_by(cache)
        if SKIP_PROCESSED_INPUT in self.skip:
            log.info("The cache stays until the search is over, for every trial reads it.")
        return cache

    def _check_by_the_first(self) -> None:
        """The metric and its goal, by the first variant's data: afterwards every trial would
        have been chosen by them."""
        try:
            cache = prepare(self.session, self.data)
        except DistcoreError as error:
            if is_of_the_system(error):
                raise
            # Its trials fail, others need not.
            log.warning("The first variant is not checked, for it cannot be prepared: %s", error)
            return
        self._check_by(cache)

    def _check_by(self, cache: Cache) -> None:
        check_objective(
            self.section, self.objective, self.session.features, cache, self.session.plugins
        )

    def _described(self) -> JSON:
        """What this search is, but for `cache`: the key of the one that all trials read, or of the
        first config's that could be tried."""
        return {
            "config": {**without_credentials(self.section.values), SECTION: self.section.written},
            "data": self.data.names(),
            "cache": None,
            "random_seed": self.values["random_seed"],
            "trainer": self._trainer(),
        }

    def _trainer(self) -> JSON | None:
        """The trainer and its options, as far as the models depend on them; None for those of
        torch that make the same steps."""
        from distcore_torch.training.bound import BoundTrainer

        trainer, reference = self.session.make(TRAINER), self.session.reference(TRAINER)
        if not isinstance(trainer, BoundTrainer):
            plugins, options = self.session.plugins, reference.options
            whole = plugins.validate(TRAINER.kind, reference.name, options)
            options = options if whole is None else whole.model_dump(mode="json")
            return {"type": reference.name, **options}
        return {"type": reference.name, **trainer.bound} if trainer.bound else None

    def _given(self) -> JSON:
        """See `SearchWork.given`; nothing for trees, which have rounds of their own."""
        from distcore_torch.training.trainer import TorchTrainer

        if not isinstance(self.session.make(TRAINER), TorchTrainer):
            return {}
        return given_by(self.options.scheduler, [each.trainer for each in self.configs])

    def _run_trials(self, job: SearchJob, work: TrialWork, shown: Path) -> SearchOutcome:
        session, again = self.session, begin_again(work)
        if again:
            log.info("Gone on with, since a disk or a limit ended them: %s.", ", ".join(again))
        ended = sum(record["state"] in ENDED for record in collect(work))
        session.progress.begin("trials", job.trials, "trials", rows_per_unit=0)
        session.progress.first = session.progress.done = ended  # whoever looks needs `first`
        if ended:
            log.info("%s ended before, not to be repeated.", several(ended, "trial"))
        written = {**self.section.written, "random_seed": self.values["random_seed"]}
        go_on = f"go on with: distcore hyperopt --config … --dataset … --model_resume_path {shown}"
        kept = f"The results so far are in {shown}; {go_on}"

        def say_how_to_go_on(error: DistcoreError | OSError) -> NoReturn:
            if isinstance(error, OSError):
                said = os_errors.in_words(error, go_on) or f"{error}. {kept}"
                raise TrainingError(said) from error
            error.args = (f"{error} {kept}",)
            raise error

        def concluded(interrupted: bool = False) -> SearchOutcome:
            try:
                return conclude(session, work, written, self.skip, interrupted)
            except (DistcoreError, OSError) as error:
                if is_of_the_system(error):
                    say_how_to_go_on(error)
                raise

        try:
            try:
                self.executor.run(job, session.backend, self._told(work))
            except (DistcoreError, OSError) as error:  # such as a cluster that is gone, a full disk
                if isinstance(error, UserError | OSError) and not is_of_the_system(error):
                    raise
                concluded(interrupted=True)
                say_how_to_go_on(error)
            session.progress.end()
            outcome = concluded()  # the best model may be trained to its last round again
        except KeyboardInterrupt as error:
            concluded(interrupted=True)
            raise Stopped(kept, signal_of(error)) from None
        if SKIP_PROCESSED_INPUT in self.skip and session.built_cache and work.cache is not None:
            session.closing.close()  # the use of this process
            results.remove_cache(work.cache)
        raise_without_scores(outcome)
        return outcome

    def _told(self, work: TrialWork) -> Callable[[str], None]:
        """Hears of every trial that ended: a line for people, the event for extensions."""
        best: list[float] = [
            each["score"] for each in collect(work)[:1] if each.get("score") is not None
        ]

        def told(name: str) -> None:
            record = read_record(work.folder(name))
            self.session.progress.done += 1
            score = record.get("score")
            if score is not None and (not best or work.objective.better(score, best[0])):
                best[:] = [score]
            found = "no score" if score is None else f"{self.objective.metric} {score:.6g}"
            so_far = f" (best {best[0]:.6g})" if best else ""
            why = f": {record['error'].splitlines()[0]}" if record.get("error") else ""
            log.info(
                "Trial %s %s%s; %s%s; %s",
                name,
                record["state"],
                why,
                found,
                so_far,
                in_words(record["parameters"]),
            )
            self.session.plugins.manager.hook.trial_finished(
                name=name, record=record, directory=work.folder(name)
            )

        return told


def without_credentials(values: Mapping[str, Any]) -> JSON:
    """A config as it was written, but for what no file may hold."""
    backend = values.get("backend")
    if not isinstance(backend, Mapping):
        return dict(values)
    return {
        **values,
        "backend": {name: each for name, each in backend.items() if name != "cache_credentials"},
    }

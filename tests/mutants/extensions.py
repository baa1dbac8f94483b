"""Extensions with a fault each."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading

from tests.mutants.harness import Around, Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import ExtensionSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("extensions", ExtensionSuite)


@MUTANTS.sound
class Sound:
    def __init__(self):
        self.seen = 0

    @hookimpl
    def epoch_finished(self, epoch, metrics):
        self.seen += json.dumps(metrics) != ""

    @hookimpl
    def run_finished(self, error):
        self.seen += 1


@MUTANTS.fault("test_it_listens_to_events_that_exist", quick=True)
class Misspelt(Sound):
    """It listens to an event whose name it misspells."""

    @hookimpl
    def epoch_finnished(self, epoch):
        self.seen += 1


@MUTANTS.fault("test_rank_zero_of_a_worker_group_may_hear_only_part")
class Needy(Sound):
    """Cannot be told of an epoch before a start."""

    @hookimpl
    def run_started(self, directory):
        self.directory = directory

    @hookimpl
    def epoch_finished(self, epoch):
        assert self.directory is not None


@MUTANTS.fault("test_a_run_that_is_refused_ends_with_its_own_error", quick=True)
class Presumptuous(Sound):
    """Takes it for granted that there is a folder when the run ends."""

    @hookimpl
    def run_finished(self, directory):
        os.listdir(directory / ".")


@MUTANTS.fault("test_it_asks_training_to_stop_only_if_it_says_so")
class Talkative(Sound):
    """Returns a line about each epoch, which asks training to stop."""

    @hookimpl
    def epoch_finished(self, epoch):
        return f"epoch {epoch} is done"


class Short(Around):
    """A loader that leaves the last batch out."""

    def batches(self, epoch, start=0):
        yield from list(self.inner.batches(epoch, start))[:-1]


@MUTANTS.fault("test_a_run_with_it_makes_the_same_model_and_it_never_fails")
class Meddling(Sound):
    """Leaves a batch out of each epoch."""

    @hookimpl(wrapper=True)
    def distcore_make_loader(self, request):
        made = yield
        return Short(made) if request.shuffle else made


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say", quick=True)
class Formatting(Sound):
    """Formats a metric that may have no value."""

    @hookimpl
    def epoch_finished(self, metrics):
        for output in metrics.get("validation", {}).values():
            self.seen += len([f"{value:.4f}" for value in output.values()])


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Rooted(Sound):
    """Takes it for granted that a run has a folder."""

    @hookimpl
    def run_started(self, directory):
        self.path = directory / "events.txt"


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Tidying(Sound):
    """Takes out of the config what it has read."""

    @hookimpl
    def run_started(self, config):
        self.trainer = config.pop("trainer", None)


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Rounding(Sound):
    """Rounds the metrics that others are told after it."""

    @hookimpl
    def epoch_finished(self, metrics):
        for output in metrics.get("validation", {}).values():
            output.update({name: round(value or 0.0, 1) for name, value in output.items()})


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Seeding(Sound):
    """Draws a name by numbers that the run draws from, too."""

    @hookimpl
    def checkpoint_saved(self, step):
        self.mark = random.random()


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Moving(Sound):
    """Works in the run's folder, and stays there."""

    @hookimpl
    def results_written(self, directory):
        os.chdir(directory)


@MUTANTS.fault("test_it_takes_whatever_an_event_may_say")
class Sorting(Sound):
    """Knows ordinary errors alone."""

    @hookimpl
    def run_finished(self, error):
        self.kind = {"NoneType": 0, "DataError": 1}[type(error).__name__]


@MUTANTS.fault("test_a_run_with_it_makes_the_same_model_and_it_never_fails")
class Cleaning(Sound):
    """Removes files of the run that it takes for its own."""

    @hookimpl
    def results_written(self, directory):
        for path in directory.glob("*statistics.json"):
            path.unlink()


ONLY = []


@MUTANTS.fault("test_every_run_has_one_of_its_own")
class Single(Sound):
    """One object for all runs of a process."""

    def __new__(cls):
        ONLY.append(super().__new__(cls))
        return ONLY[0]


WHATEVER = "test_it_takes_whatever_an_event_may_say"


@MUTANTS.fault(WHATEVER)
class Logging(Sound):
    """Sets up the log of the whole process."""

    @hookimpl
    def run_finished(self):
        logging.getLogger().addHandler(logging.NullHandler())


@MUTANTS.fault(WHATEVER)
class Undying(Sound):
    """A thread of its own keeps the process from ending."""

    @hookimpl
    def run_finished(self):
        threading.Thread(target=threading.Event().wait, args=(25,)).start()


@MUTANTS.fault(WHATEVER)
class Importing(Sound):
    """Puts a folder before all modules."""

    @hookimpl
    def run_finished(self):
        sys.path.insert(0, "plugins")


@MUTANTS.fault(WHATEVER)
class Precise(Sound):
    """Lets torch compute in doubles from now on."""

    @hookimpl
    def run_finished(self):
        import torch

        torch.set_default_dtype(torch.float64)


@MUTANTS.fault(WHATEVER)
class Masking(Sound):
    """Files that are written from now on are its user's alone."""

    @hookimpl
    def run_finished(self):
        os.umask(0o077)


@hookimpl
def distcore_make_extension(name):
    made = MUTANTS.named(name)
    return made and made()

"""Extensions with a fault each."""

from __future__ import annotations

import json
import os

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


@hookimpl
def distcore_make_extension(name):
    made = MUTANTS.named(name)
    return made and made()

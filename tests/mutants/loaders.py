"""Loaders with a fault each, around the built-in one."""

from __future__ import annotations

from dataclasses import replace

from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import LOADER, Rank
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import LoaderSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("loaders", LoaderSuite)


class AroundPacked(Around):
    """asked: what the built-in loader is asked for instead."""

    @staticmethod
    def asked(request):
        return request


@MUTANTS.sound
class Sound(AroundPacked):
    """The built-in one."""


@MUTANTS.fault("test_every_row_once_an_epoch_in_batches_of_the_size_asked", quick=True)
class Short(AroundPacked):
    """Leaves the last batch out."""

    def batches(self, epoch, start=0):
        kept = list(self.inner.batches(epoch, start))
        yield from kept[:-1]


@MUTANTS.fault("test_any_start_goes_on_where_it_says_also_under_other_ranks")
class Forgetful(AroundPacked):
    """Starts from the beginning wherever it is told to start."""

    def batches(self, epoch, start=0):
        yield from self.inner.batches(epoch)


@MUTANTS.fault("test_epochs_and_seeds_differ")
class Stubborn(AroundPacked):
    """The same order in every epoch."""

    def batches(self, epoch, start=0):
        yield from self.inner.batches(0, start)


@MUTANTS.fault("test_the_same_global_batches_for_any_number_of_ranks", quick=True)
class Greedy(AroundPacked):
    """Every rank reads the whole batch."""

    @staticmethod
    def asked(request):
        return replace(request, rank=Rank())


@hookimpl
def distcore_make_loader(name, request):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(LOADER, "packed", {}, request=made.asked(request)))

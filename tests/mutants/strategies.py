"""Strategies with a fault each, around the one of `data_parallel`."""

from __future__ import annotations

import torch
from tests.mutants.harness import Mutants

from distcore_local.data_parallel import DataParallel
from distcore_testing import StrategySuite

# Exact training goes through shared memory there, past what these change.
MUTANTS = Mutants("", StrategySuite, {"exact": False, "worlds": (3,)})


@MUTANTS.sound
class Summing(DataParallel):
    """Gradients are summed by one collective."""

    def exchange(self, numel, dtype):
        return super(DataParallel, self).exchange(numel, dtype)


@MUTANTS.fault("test_gradients_are_summed", quick=True)
class Averaging(Summing):
    """Averages gradients over the ranks instead of summing them."""

    def all_reduce(self, values):
        super().all_reduce(values)
        if values.is_floating_point():
            values /= self.rank.world


@MUTANTS.fault("test_gradients_are_summed")
class SkipsMissing(Summing):
    """A gradient that this rank does not have stays missing."""

    def reduce(self, stop=False):
        missing = [
            each for group in self._groups for each in group._parameters if each.grad is None
        ]
        found = super().reduce(stop)
        for each in missing:
            each.grad = None
        return found


@MUTANTS.fault("test_gradients_are_summed")
class HalfPrecision(Summing):
    """Gradients travel as 16-bit floats."""

    def all_reduce(self, values):
        if not values.is_floating_point():
            return super().all_reduce(values)
        half = values.half().to(values.dtype)
        super().all_reduce(half)
        values.copy_(half)


@MUTANTS.fault("test_every_rank_has_the_same_bits")
class OwnOrder(Summing):
    """Every rank adds the others' gradients to its own, in an order of its own."""

    def all_reduce(self, values):
        if not values.is_floating_point():
            return super().all_reduce(values)
        parts = [torch.tensor(each, dtype=values.dtype) for each in self.gather(values.tolist())]
        for each in parts[: self.rank.index] + parts[self.rank.index + 1 :]:
            values += each.reshape(values.shape)


@MUTANTS.fault("test_every_rank_gets_the_weights_and_buffers_of_rank_zero")
class OwnBuffers(Summing):
    """Buffers stay each rank's own: only weights are sent."""

    def prepare(self, module):
        kept = {name: each.clone() for name, each in module.named_buffers()}
        super().prepare(module)
        for name, each in module.named_buffers():
            each.copy_(kept[name])


@MUTANTS.fault("test_every_rank_gets_the_weights_and_buffers_of_rank_zero")
class TrainableAlone(Summing):
    """Weights that are not trained stay each rank's own."""

    def prepare(self, module):
        kept = [(each, each.clone()) for each in module.parameters() if not each.requires_grad]
        super().prepare(module)
        for each, before in kept:
            each.copy_(before)


@MUTANTS.fault("test_every_rank_gets_the_weights_and_buffers_of_rank_zero")
class AddsZeros(Summing):
    """Weights are sent as numbers added to zeros, so the sign of -0.0 is lost."""

    def _copy_from_first(self, tensor):
        super()._copy_from_first(tensor)
        if tensor.is_floating_point():
            tensor += 0.0


@MUTANTS.fault("test_if_any_rank_wants_to_stop_all_hear_it")
class StopsOfRankZero(Summing):
    """Only rank 0 is asked whether to stop."""

    def reduce(self, stop=False):
        return super().reduce(stop and self.rank.index == 0)


@MUTANTS.fault("test_if_any_rank_wants_to_stop_all_hear_it")
class StopsAlone(Summing):
    """A rank that wants to stop does, and the others go on."""

    def reduce(self, stop=False):
        super().reduce(False)
        return stop


@MUTANTS.fault("test_if_any_rank_wants_to_stop_all_hear_it")
class StopsForGood(Summing):
    """Once a rank wanted to stop, every later step is told so."""

    asked = False

    def reduce(self, stop=False):
        self.asked |= super().reduce(stop)
        return self.asked


@MUTANTS.fault("test_sums_of_small_tensors")
class MeanOfSums(Summing):
    """The sum over ranks of a small tensor is their mean."""

    def sum(self, values):
        found = super().sum(values)
        return (
            found // self.rank.world if not found.is_floating_point() else found / self.rank.world
        )


@MUTANTS.fault("test_sums_of_small_tensors")
class SumsInFloats(Summing):
    """Whole numbers are summed as float32, and large ones lose their last digits."""

    def sum(self, values):
        return super().sum(values.float()).to(values.dtype)


@MUTANTS.fault("test_sums_of_small_tensors")
class FlatSums(Summing):
    """The sum of a matrix comes back flat."""

    def sum(self, values):
        return super().sum(values).reshape(-1)


@MUTANTS.fault("test_values_are_gathered_in_rank_order")
class GathersOwnFirst(Summing):
    """A rank's own value comes first."""

    def gather(self, value):
        found = super().gather(value)
        return [found.pop(self.rank.index), *found]


@MUTANTS.fault("test_values_are_gathered_in_rank_order")
class GathersAlike(Summing):
    """Values are cut at the length of rank 0's text."""

    def gather(self, value):
        found = super().gather(value)
        if isinstance(value, dict) and "text" in value:
            longest = max(len(found[0]["text"]), 1000)
            found = [{**each, "text": each["text"][:longest]} for each in found]
        return found


@MUTANTS.fault("test_gathering_waits_for_every_rank")
class GathersNothing(Summing):
    """If a rank has nothing to give, it does not wait for the others."""

    def gather(self, value):
        return [None] * self.rank.world if value is None else super().gather(value)

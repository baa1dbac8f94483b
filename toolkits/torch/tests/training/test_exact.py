"""Exact training: one tree for every number of ranks, and whatever would let their number show
is seen."""

import itertools
import threading
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distcore_core.contracts import Rank
from distcore_core.errors import ConfigError, TrainingError, UserError
from distcore_testing.loops import TinyFeatures, TinyNet, TinyRun, tiny_batch, tiny_loop
from distcore_torch import products
from distcore_torch.bags import embedding_bag
from distcore_torch.batch import Batch
from distcore_torch.products import linear
from distcore_torch.sampler import share
from distcore_torch.train_options import TrainerOptions
from distcore_torch.training.determinism import one_thread, weights_digest
from distcore_torch.training.exact import by_parts, groups, kernels, layers, tree
from distcore_torch.training.exact.cut import Cut, NotByParts
from distcore_torch.training.exact.exchange import GatheredTree, Shares, SlicedTree
from distcore_torch.training.exact.gradients import PartGradients, Way
from distcore_torch.training.exact.kernels import Place
from distcore_torch.training.exact.sink import Sink
from distcore_torch.training.exact.tree import Adder, Total, branches, lay_tree_sum, tree_sum
from distcore_torch.training.losses import Losses
from distcore_torch.training.plan import TrainPlan
from distcore_torch.training.step import Stepper
from distcore_torch.training.strategy import FlatStrategy, SingleProcess
from distcore_torch.training.trainer import exact_notes

PARTS = st.sampled_from([1, 2, 4, 8, 16, 32])


# ------------------------------------------------------------------ the tree


@given(PARTS, st.data())
def test_branches_are_whole_and_few(parts, data):
    world = data.draw(st.integers(1, parts))
    for index in range(world):
        mine = share(Rank(index=index, world=world), parts)
        found = branches(mine)
        assert [leaf for each in found for leaf in range(each.start, each.start + each.size)] == [
            *mine
        ]
        assert all(
            each.start % each.size == 0 and each.size & (each.size - 1) == 0 for each in found
        )
        assert len(found) <= max(1, 2 * (len(mine).bit_length() - 1) + 1)
        if world & (world - 1) == 0:
            assert len(found) == 1


@given(PARTS, st.data())
def test_the_sum_has_the_same_bits_however_the_leaves_are_shared(parts, data):
    world = data.draw(st.integers(1, parts))
    torch.manual_seed(parts)
    leaves = [torch.randn(5) * 10.0 ** (index % 13 - 6) for index in range(parts)]
    expected, sums, total = tree_sum(leaves), {}, Total(parts)
    for branch in Shares(Rank(world=world), parts).all:
        adder = Adder(5, leaves[0])
        for place in range(branch.size):
            leaf = adder.leaf()
            leaf.copy_(leaves[branch.start + place])
            adder.add(leaf, place)
        sums[branch] = torch.empty(5)
        adder.take(sums[branch])
    kept = {branch: each.clone() for branch, each in sums.items()}
    for _ in range(2):
        assert torch.equal(total(sums), expected)
    assert all(torch.equal(sums[branch], each) for branch, each in kept.items())


@pytest.mark.parametrize("by", ["compiled code", "torch"])
@given(st.sampled_from([1, 2, 4, 8, 32]), st.sampled_from([1, 255, 257, 1000]), st.integers(0, 99))
def test_a_laid_sum_is_the_trees(by, count, numbers, seed):
    leaves = torch.randn(count, numbers, generator=torch.Generator().manual_seed(seed))
    leaves *= torch.tensor([1e-20, -1.0, 1e20, -0.0])[torch.arange(numbers) % 4]
    expected, out = tree_sum(list(leaves.clone())), torch.full((numbers,), torch.nan)
    with pytest.MonkeyPatch.context() as patch:
        if by == "torch":
            patch.setattr(tree, "sums", None)
        lay_tree_sum(out, leaves)
    assert out.numpy().tobytes() == (expected + 0.0).numpy().tobytes()


@pytest.mark.skipif(tree.sums is None, reason="built without a C compiler")
@pytest.mark.parametrize(("leaves", "count"), [(8, 3), (8, 0), (9, 2), (4, 2), (-1, 2)])
def test_leaves_of_another_size_than_their_sum_are_refused(leaves, count):
    with pytest.raises(ValueError, match="not as many as a power of two"):
        tree.sums.add_leaves(bytearray(16), bytes(4 * leaves if leaves > 0 else 31), count)


def test_another_order_of_the_leaves_is_another_sum():
    """So the tests above can fail."""
    torch.manual_seed(0)
    leaves = [torch.randn(100) for _ in range(8)]
    assert not torch.equal(tree_sum(leaves), sum(leaves))
    assert not torch.equal(tree_sum(leaves), tree_sum([leaves[0], *leaves[2:], leaves[1]]))


# ------------------------------------------------------------------ ranks as threads


class Meeting:
    """The collectives of ranks that are threads of this process."""

    def __init__(self, world):
        self.world, self.barrier = world, threading.Barrier(world, timeout=60)
        self.laid = [None] * world
        self.sent = 0

    def swap(self, rank, value):
        """Every rank's value."""
        self.laid[rank] = value
        self.barrier.wait()
        found = list(self.laid)
        self.barrier.wait()
        return found


class Threaded(FlatStrategy):
    """A strategy over threads; `sliced`: exact training through slices, else through
    `all_reduce` alone."""

    def __init__(self, meeting, index, sliced=False):
        super().__init__()
        self.meeting, self.sliced = meeting, sliced
        self.rank = Rank(index=index, world=meeting.world)

    def setup(self, rank):
        """They have met."""

    def all_reduce(self, values):
        values.copy_(
            torch.stack(self.meeting.swap(self.rank.index, values.clone())).sum(0).to(values.dtype)
        )

    def gather(self, value):
        return self.meeting.swap(self.rank.index, value)

    def tree_exchange(self, numel, dtype, parts):
        if not self.sliced or self.rank.world == 1:
            return super().tree_exchange(numel, dtype, parts)
        shares = Shares(self.rank, parts)
        return SlicedTree(shares, numel, dtype, self.device, self._to_all, self._from_all)

    def _to_all(self, values, sent, received):
        ranks = self.meeting.swap(self.rank.index, values.split(list(sent)))
        self.meeting.sent += values.nbytes - sent[self.rank.index] * values.itemsize
        found = torch.cat([each[self.rank.index] for each in ranks])
        assert found.numel() == sum(received)
        return found

    def _from_all(self, values):
        self.meeting.sent += values.nbytes * (self.rank.world - 1)
        return torch.cat(self.meeting.swap(self.rank.index, values.clone()))


def in_threads(world, work, sliced=False):
    """What `work(strategy)` gives for each rank; the first error of a rank is raised."""
    meeting, found, errors = Meeting(world), [None] * world, []

    def one(index):
        try:
            found[index] = work(Threaded(meeting, index, sliced))
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(world)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise next(
            (each for each in errors if not isinstance(each, threading.BrokenBarrierError)),
            errors[0],
        )
    return found, meeting


@pytest.mark.parametrize("world", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("kind", [GatheredTree, SlicedTree])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_exchange_gives_the_trees_sum_to_every_rank(world, kind, dtype):
    torch.manual_seed(1)
    leaves = [torch.randn(2, 37).to(dtype) * 10.0 ** (index - 4) for index in range(8)]

    def work(strategy):
        exchange = strategy.tree_exchange(37, dtype, 8)
        assert isinstance(exchange, kind)
        found = []
        for step in range(2):
            mine = branches(share(strategy.rank, 8))
            for slot, branch in zip(exchange.slots(), mine, strict=True):
                slot.copy_(
                    tree_sum(
                        [each[step] for each in leaves[branch.start : branch.start + branch.size]]
                    )
                )
            found.append(exchange.sum().clone())
        return torch.stack(found)

    found, _ = in_threads(world, work, sliced=kind is SlicedTree)
    assert all(torch.equal(each, tree_sum(leaves)) for each in found)


@pytest.mark.parametrize("world", [2, 4, 8])
def test_a_power_of_two_of_ranks_sends_what_a_ring_sends(world):
    numel = 8000

    def work(strategy):
        strategy.tree_exchange(numel, torch.float32, 8).sum()

    _, meeting = in_threads(world, work, sliced=True)
    assert meeting.sent / world == 2 * (world - 1) / world * numel * 4


# ------------------------------------------------------------------ steps

STEPS = 6


def run(world, *, sliced=False, module=None, micro_rows=1000, rows=90, **options):
    """The digest of weights and buffers after some steps, equal in all ranks, and the sums of
    losses by part. Each cut of a batch is met twice, so that its second step may go at once."""
    made = TrainerOptions.model_validate({"optimizer": "adam", "exact": True, **options})
    batches = [tiny_batch(rows - 7 * (step % 3), seed=step) for step in range(STEPS)]

    def work(strategy):
        return steps(strategy, made, module or net, batches, micro_rows)

    with one_thread(), torch.random.fork_rng():
        found = [work(SingleProcess())] if world == 1 else in_threads(world, work, sliced)[0]
    assert len({digest for digest, _ in found}) == 1
    return found[0][0], [part for _, parts in found for part in parts]


GENERATOR = threading.RLock()
"""Torch's random numbers are of the process, and ranks are threads here: one of them at a time."""


def net():
    return TinyNet(dropout=0.3, norm=True)


def unnormed():
    return TinyNet(dropout=0.3)


def steps(strategy, options, make, batches, micro_rows):
    with GENERATOR:
        torch.manual_seed(0)
        module = make()
    strategy.prepare(module)
    made = Stepper(
        module, TinyFeatures(), options, strategy, learning_rate=0.01, micro_rows=micro_rows, seed=5
    )
    if isinstance(made.gradients, PartGradients):
        made.gradients._one_by_one = holding(made.gradients._one_by_one)
        made.gradients._pass = holding(made.gradients._pass)
    for step, batch in enumerate(batches):
        made.step(parted(batch, strategy.rank, options.parts), batch.rows, step, False)
    state = tuple(int(each) for each in module.buffers() if not each.is_floating_point())
    return (weights_digest(module), state), made.sums.tolist()


def holding(function):
    def held(*arguments):
        with GENERATOR:
            return function(*arguments)

    return held


def parted(batch, rank, parts):
    cuts = [batch.rows * cut // parts for cut in range(parts + 1)]
    mine = share(rank, parts)
    rows = [cuts[part + 1] - cuts[part] for part in mine]
    own = batch.part(cuts[mine.start], cuts[mine.stop])
    return Batch(own.packed, own.layout, part_rows=rows)


class Centred(TinyNet):
    """Its forward pass lays another tensor in the place of its buffer."""

    def __init__(self):
        super().__init__(dropout=0.0)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, batch):
        found = super().forward(batch)
        logits = torch.stack([found["y"], found["z"]], 1)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * logits.mean(0).detach()
        return {name: logits[:, at] - self.mean[at] for at, name in enumerate(found)}


CASES = {
    "dropout and norm": {},
    "a buffer that is replaced": {"module": Centred},
    "accumulated": {"micro_rows": 5, "module": unnormed},
    "clipped": {"gradient_clipping": {"clipglobalnorm": 0.1}},
    "penalty": {"regularization_lambda": 0.1, "regularization_type": "l1_l2"},
    "fewer rows than parts": {"rows": 42, "module": unnormed},
    "bf16": {"use_mixed_precision": True},
    "lbfgs": {"optimizer": {"type": "lbfgs", "max_iter": 3}, "module": unnormed},
    "sixteen parts": {"parts": 16, "module": unnormed},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world", [2, 3, 5, 8])
def test_steps_end_with_the_same_bits_on_any_number_of_ranks(case, world):
    expected = run(1, **CASES[case])
    assert run(world, sliced=bool(world % 2), **CASES[case]) == expected


@pytest.mark.parametrize("sliced", [False, True])
def test_one_rank_that_wants_to_stop_stops_all_of_them(sliced):
    options, batch = TrainerOptions.model_validate({"exact": True}), tiny_batch(48)

    def work(strategy):
        given = TinyNet(dropout=0.0), TinyFeatures(), options, strategy
        made = Stepper(*given, learning_rate=0.1, micro_rows=99, seed=0)
        asks = (True, strategy.rank.index == 1, False)
        return [
            made.step(parted(batch, strategy.rank, 8), 48, step, stop)
            for step, stop in enumerate(asks)
        ]

    with one_thread(), torch.random.fork_rng():
        assert work(SingleProcess()) == [True, False, False]
        assert in_threads(3, work, sliced)[0] == [[True, True, False]] * 3


def test_a_step_is_counted_once_by_batch_norm_whatever_the_parts():
    (_, (counted,)), _ = run(3)
    assert counted == STEPS


def test_a_buffer_of_another_shape_is_told():
    class Grown(Centred):
        def forward(self, batch):
            self.mean = torch.zeros(3)
            return TinyNet.forward(self, batch)

    with pytest.raises(UserError, match=r"gave its buffer mean the shape \(3,\) instead of \(2,\)"):
        run(1, module=Grown)


class Masked(TinyNet):
    """With a mask of infinities, and the least input so far, which begins as infinity."""

    def __init__(self):
        super().__init__(dropout=0.0)
        self.register_buffer("mask", torch.triu(torch.full((2, 2), -torch.inf), 1))
        self.register_buffer("least", torch.tensor(torch.inf))

    def forward(self, batch):
        found = super().forward(batch)
        self.least.copy_(torch.minimum(self.least, batch["a"].min()))
        logits = torch.stack([found["y"], found["z"]], 1) @ self.mask.softmax(1)
        return {"y": logits[:, 0], "z": logits[:, 1]}


@pytest.mark.parametrize(("exact", "world"), [(False, 2), (True, 1), (True, 2)])
def test_buffers_that_hold_infinity_become_no_nan(exact, world):
    options = TrainerOptions.model_validate({"exact": exact})

    def work(strategy):
        module, batch = Masked(), tiny_batch(90)
        strategy.prepare(module)
        given = module, TinyFeatures(), options, strategy
        made = Stepper(*given, learning_rate=0.1, micro_rows=99, seed=0)
        for step in range(2):
            made.step(parted(batch, strategy.rank, 8), 90, step, False)
        return module

    with one_thread(), torch.random.fork_rng():
        found = [work(SingleProcess())] if world == 1 else in_threads(world, work)[0]
    for module in found:
        assert torch.equal(module.mask, Masked().mask)
        assert module.least.isfinite()
        assert all(each.isfinite().all() for each in module.parameters())


def test_a_part_without_rows_leaves_infinity_in_a_buffer():
    (group,) = groups.part_groups(Masked())
    leaf = torch.empty(group.numel)
    group.collect(leaf)
    *_, mask, least = group.views(leaf)
    assert torch.equal(mask, Masked().mask)
    assert least == torch.inf


def test_another_number_of_parts_is_another_run():
    assert run(1, parts=4) != run(1, parts=8)


# ------------------------------------------------------------------ all rows at once


class Wide(torch.nn.Module):
    """Layers that go at once, by part or not at all, as `extra` says."""

    def __init__(self, extra=None):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(4000, 6))
        self.encoder = torch.nn.Linear(11, 32)
        self.norms = torch.nn.Sequential(
            torch.nn.BatchNorm1d(32), torch.nn.LayerNorm(32), torch.nn.PReLU()
        )
        self.body = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.2)
        )
        self.last = torch.nn.Linear(64, 2)
        self.extra = extra or (lambda module, hidden: hidden)

    def forward(self, batch):
        inputs = batch.block(("a", "b", "c", "d", "e"))
        looked = self.table.index_select(0, (batch["a"].abs() * 1000).long().clamp(max=3999))
        hidden = torch.nn.functional.gelu(self.norms(self.encoder(torch.cat([inputs, looked], 1))))
        found = self.last(self.extra(self, self.body(hidden)))
        return {"y": found[:, 0], "z": found[:, 1]}


class Broad(Wide):
    """With layers that go by oneDNN, if the processor has vectors of 512 bits and is not Intel's."""

    def __init__(self):
        super().__init__(
            lambda module, hidden: linear(linear(hidden, module.up, module.bias), module.down)
        )
        self.up = torch.nn.Parameter(torch.randn(256, 64) / 8)
        self.bias = torch.nn.Parameter(torch.randn(256))
        self.down = torch.nn.Parameter(torch.randn(64, 256) / 16)


class Bagged(Wide):
    """With means of rows of a table, which other rows name too, and some rows none."""

    def __init__(self):
        super().__init__(self.bagged)
        self.words = torch.nn.Parameter(torch.randn(30, 64))

    def bagged(self, module, hidden):
        lengths = (hidden.detach()[:, 0].abs() * 1000).long() % 5
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        places = torch.arange(4 * len(hidden)).view(-1, 4)
        values = (lengths[:, None] * 7 + places % 4)[places % 4 < lengths[:, None]] % 30
        return hidden + embedding_bag(self.words, values, offsets, "mean")


class Frozen(Wide):
    """With a layer that learns its weight alone, and one that learns its bias alone."""

    def __init__(self):
        super().__init__()
        self.encoder.bias.requires_grad_(False)
        self.last.weight.requires_grad_(False)


class Greatest(Bagged):
    """With the greatest of a table's rows, which no kernel of ours has."""

    def bagged(self, module, hidden):
        offsets = torch.arange(len(hidden) + 1) * 2
        values = (hidden.detach()[:, :2].abs() * 1000).long().flatten() % 30
        return hidden + embedding_bag(self.words, values, offsets, "max")


def gradients_of(make, rows=320, parts=8, seed=1):
    """The gradients object after one backward pass, and what its slots hold."""
    torch.manual_seed(0)
    module, strategy = make(), SingleProcess()
    strategy.prepare(module)
    options = TrainerOptions.model_validate({"exact": True, "parts": parts})
    losses = Losses(module, TinyFeatures(), options, strategy.device)
    made = PartGradients(module, losses, options, strategy, micro_rows=rows, seed=seed)
    with one_thread(), torch.random.fork_rng():
        made.backward(parted(tiny_batch(rows), strategy.rank, parts), 1 / rows, 3)
        return made, [slot.clone() for group in made._groups for slot in group.exchange.slots()]


@pytest.mark.parametrize("rows", [64, 320, 331, 512])
@pytest.mark.parametrize(
    ("make", "built"),
    [
        *((each, True) for each in (Wide, Broad, Bagged, Frozen, Greatest)),
        (Broad, False),
    ],
    ids=str,
)
def test_all_rows_at_once_have_the_bits_of_one_part_after_another(make, built, rows, monkeypatch):
    """In the first pass the ways are compared; in the second only one of them runs."""
    if not built:
        monkeypatch.setattr(products, "compiled", None)
    made, first = gradients_of(make, rows)
    assert set(made.ways.values()) == {Way.AT_ONCE}
    alone = []
    monkeypatch.setattr(PartGradients, "_one_by_one", lambda *given: alone.append(given))

    def only(self, *given):
        self._together(*given)
        return Way.AT_ONCE

    monkeypatch.setattr(PartGradients, "_tried", only)
    _, second = gradients_of(make, rows)
    assert not alone
    exactly = made._groups[0].exactly
    assert torch.equal(first[0][:exactly] + 0.0, second[0][:exactly] + 0.0)
    assert second[0][:exactly].count_nonzero() > 1000


def in_company(right, first, *others, **more):
    """A kernel that gives many rows other bits than few."""
    return right(first, *others, **more) * (1.000001 if len(first) > 80 else 1)


def layers_otherwise(monkeypatch):
    # `F` is one module for all, torch's own layers too: only ours are to be wrong.
    own = SimpleNamespace(linear=partial(in_company, torch.nn.functional.linear))
    monkeypatch.setattr(layers, "F", own)
    monkeypatch.setattr(kernels, "F", own)


def gradients_of_inputs_otherwise(monkeypatch):
    monkeypatch.setattr(torch, "mm", partial(in_company, torch.mm))


def products_otherwise(monkeypatch):
    for name in ("_batched", "_turned"):
        right = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *given, right=right: right(*given) * 1.000001)


def sums_otherwise(monkeypatch):
    right = kernels.as_batch
    monkeypatch.setattr(kernels, "as_batch", lambda *given: right(*given) * 1.000001)


def chains_otherwise(monkeypatch):
    right = products.lay_weight_gradients

    def lay(out, *given):
        right(out, *given)
        out *= 1.000001

    monkeypatch.setattr(products, "lay_weight_gradients", lay)


OTHERWISE = (
    chains_otherwise,
    layers_otherwise,
    gradients_of_inputs_otherwise,
    products_otherwise,
    sums_otherwise,
)


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_what_a_kernel_gives_otherwise_goes_by_part(otherwise, monkeypatch):
    _, expected = gradients_of(Wide)
    otherwise(monkeypatch)
    made, found = gradients_of(Wide)
    assert set(made.ways.values()) == {Way.AT_ONCE}
    assert torch.equal(found[0], expected[0])


def test_running_statistics_move_alike_both_ways(monkeypatch):
    made, _ = gradients_of(Wide)
    made.reduce(False)
    norm = made._groups[0].buffers
    monkeypatch.setattr(PartGradients, "_may_go_at_once", lambda self, sizes: False)
    alone, _ = gradients_of(Wide)
    alone.reduce(False)
    assert made.ways
    assert not alone.ways
    assert all(
        torch.equal(one, other) for one, other in zip(norm, alone._groups[0].buffers, strict=True)
    )
    assert made._groups[0].counters[0] == alone._groups[0].counters[0] == 1


def test_who_draws_from_torchs_generator_goes_by_part_though_it_made_no_difference_at_first():
    def drawing(module, hidden):
        return hidden * (torch.rand_like(hidden) >= 0)

    made, _ = gradients_of(lambda: Wide(drawing))
    assert set(made.ways.values()) == {Way.ONE_BY_ONE}


@pytest.mark.parametrize(
    "new",
    [
        lambda hidden: hidden * hidden.detach().abs().max().clamp(max=1.0).item(),
        lambda hidden: hidden * (torch.rand_like(hidden) > 0.5),
    ],
    ids=["looks at values", "draws"],
)
def test_what_a_network_does_later_for_the_first_time_goes_by_part_from_then_on(new, monkeypatch):
    late = False

    def extra(module, hidden):
        return new(hidden) if late else hidden

    made, _ = gradients_of(lambda: Wide(extra))
    assert set(made.ways.values()) == {Way.AT_ONCE}
    late, rank = True, Rank()
    with one_thread(), torch.random.fork_rng():
        made.backward(parted(tiny_batch(320), rank, 8), 1 / 320, 3)
    assert set(made.ways.values()) == {Way.ONE_BY_ONE}
    monkeypatch.setattr(PartGradients, "_may_go_at_once", lambda self, sizes: False)
    _, expected = gradients_of(lambda: Wide(extra))
    assert torch.equal(made._groups[0].exchange.slots()[0], expected[0])


LAYOUTS = {
    "a number a row": (lambda shape: torch.randn(shape), (8 * by_parts.VECTOR,)),
    "strided": (lambda shape: torch.randn(*shape, 7)[:, 3], (8 * by_parts.VECTOR,)),
    "columns": (lambda shape: torch.randn(shape), (8 * by_parts.VECTOR, 5)),
    "columns of few rows": (lambda shape: torch.randn(shape), (128, 4)),
    "columns in pieces": (lambda shape: torch.randn(*shape, 2)[..., 0], (8 * by_parts.VECTOR, 5)),
    "by column": (lambda shape: torch.randn(shape[::-1]).t(), (8 * by_parts.VECTOR, 5)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", sorted(by_parts.NUMBERS))
def test_numbers_have_the_same_bits_in_any_company_of_whole_vectors(name, layout):
    torch.manual_seed(0)
    make, shape = LAYOUTS[layout]
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    numbers, more = (make(shape).abs_().add_(0.01) for _ in range(2))
    two = {"reduction": "none"} if "loss" in name or "logits" in name else {}

    def found(rows):
        each = numbers[rows].requires_grad_()
        result = function(each, more[rows], **two) if two else function(each)
        return result, *torch.autograd.grad(result.sum(), each)

    whole, size = found(slice(None)), shape[0] // 8
    parts = [found(slice(start, start + size)) for start in range(0, shape[0], size)]
    for place in range(2):
        assert torch.equal(whole[place], torch.cat([each[place] for each in parts]))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("columns", [slice(0, 5), slice(3, None), slice(None)])
def test_a_part_by_itself_lies_as_all_rows_do(rows, columns):
    """Kernels of some processors round otherwise where rows begin elsewhere in a cache line."""
    whole = torch.randn(8 * rows, 34)[:, columns]
    for part in Cut((rows,) * 8).apart(whole):
        assert part.data_ptr() % 64 == whole.data_ptr() % 64
        assert part.stride() == whole.stride() or rows == 1


SHAPES = [(0, 5), (1, 1), (1, 16), (2, 1), (2, 33), (3, 1), (6, 16), (31, 3), (64, 64), (101, 256)]
SIZES = [
    *((size,) * 8 for size in (1, 4, 8, 33, 64, 192)),
    (8, 8),
    (4, 4, 4, 5, 6, 6),
    (35, 34, 31),
]


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_layers_have_the_bits_of_parts_by_themselves(sizes, inputs, outputs):
    """Also those whose input is a view of some columns of a batch."""
    generator = torch.Generator().manual_seed(1)
    rows = sum(sizes)
    packed = torch.randn(rows, inputs + 3, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator).requires_grad_()
    bias = torch.randn(outputs, generator=generator).requires_grad_()
    trained = (weight, bias)
    upon = torch.randn(rows, outputs, generator=generator)
    for x in (packed[:, 3:], packed[:, 3:].contiguous()):
        alone, leaves = [], []
        for start, stop in itertools.pairwise((0, *itertools.accumulate(sizes))):
            own = packed[start:stop].clone()[:, 3:]
            if x.is_contiguous():
                own = own.clone()  # `contiguous` would leave a single row where it is, not aligned
            own = own.detach().requires_grad_()
            found = torch.nn.functional.linear(own, weight, bias)
            gradients = torch.autograd.grad(found, (own, *trained), upon[start:stop].clone())
            alone.append((found, gradients[0]))
            leaves.append(gradients[1:])
        branch = range(1 << (len(sizes).bit_length() - 1))  # as many as a power of two
        spans = [*(range(part, part + 1) for part in range(len(sizes))), branch]
        slots = {id(each): each.new_full((len(spans), *each.shape), torch.nan) for each in trained}
        sink = Sink(lambda each, number, slots=slots: slots[id(each)][number], spans)
        x = x.detach().requires_grad_()
        found = layers.Linear.apply(x, weight, bias, Cut(sizes), sink, False)
        (before,) = torch.autograd.grad(found, (x,), upon)
        assert torch.equal(found, torch.cat([each[0] for each in alone]))
        assert torch.equal(before, torch.cat([each[1] for each in alone]))
        for each, parts in zip(trained, zip(*leaves, strict=True), strict=True):
            summed = tree_sum(parts[: len(branch)])
            assert torch.equal(slots[id(each)], torch.stack([*parts, summed]))
        # A sum loses some of its parts' bits: all parts at once, each by itself.
        weights, biases = (torch.stack(parts) for parts in zip(*leaves, strict=True))
        assert torch.equal(Cut(sizes).sums(upon, range(len(sizes))), biases)
        places = [Place.of(each) for each in (upon, x, x)]
        way = kernels.products_by_part(sizes, (outputs, inputs), *places)
        assert torch.equal(way(upon, x.detach(), sizes), weights)


@pytest.mark.parametrize(("rows", "at_once"), [(512, True), (496, False), (500, False)])
def test_numbers_go_at_once_if_their_parts_fill_whole_vectors(rows, at_once, monkeypatch):
    cuts, by_part = [], by_parts.ByParts.each

    def each(self, func, *rest):
        cuts.append(func.__name__)
        return by_part(self, func, *rest)

    monkeypatch.setattr(by_parts.ByParts, "each", each)
    gradients_of(
        lambda: Wide(lambda module, hidden: hidden[:, 0].contiguous().tanh()[:, None] * hidden),
        rows,
    )
    assert ("tanh" in cuts) is not at_once


def test_numbers_that_are_summed_over_all_rows_are_refused():
    def penalised(module, hidden):
        return hidden + torch.nn.functional.mse_loss(hidden, hidden.detach() + 1)

    made, _ = gradients_of(lambda: Wide(penalised), 512)
    assert set(made.ways.values()) == {Way.ONE_BY_ONE}


NOT_AT_ONCE = {
    "looks at values": lambda module, hidden: hidden * (2 if hidden.sum().item() > 0 else 1),
    "mixes rows": lambda module, hidden: hidden - hidden.mean(0),
    "uses a parameter twice": lambda module, hidden: hidden + module.body[0](hidden[:, :32]),
    "sums over the columns of all rows": lambda module, hidden: (
        hidden.flatten().softmax(0).view(hidden.shape)
    ),
    "changes a tensor": lambda module, hidden: hidden.sigmoid_(),
    "has random numbers of its own": lambda module, hidden: hidden * torch.rand_like(hidden),
}


@pytest.mark.parametrize("extra", NOT_AT_ONCE)
def test_what_cannot_go_at_once_goes_part_by_part(extra):
    made, _ = gradients_of(lambda: Wide(NOT_AT_ONCE[extra]))
    assert set(made.ways.values()) == {Way.ONE_BY_ONE}


ODD_LOOKUPS = {
    "bags of a matrix": lambda table: torch.nn.functional.embedding_bag(
        torch.zeros(4, 2, dtype=torch.long), table
    ),
    "as many as no row has": lambda table: table.index_select(0, torch.arange(5)),
    "columns": lambda table: table.index_select(1, torch.arange(4)),
}


@pytest.mark.parametrize("odd", ODD_LOOKUPS)
def test_lookups_that_are_not_each_rows_are_refused(odd):
    table = torch.nn.Parameter(torch.ones(8, 8))
    mode = by_parts.ByParts(Cut((2, 2)), {id(table): table}, None, None, None)
    with pytest.raises(NotByParts), mode:
        ODD_LOOKUPS[odd](table)


class Idle(Wide):
    """With a parameter that gets no gradient, and changes by its penalty alone."""

    def __init__(self):
        super().__init__()
        self.idle = torch.nn.Parameter(torch.ones(5))


@pytest.mark.parametrize(
    ("make", "world"), [*itertools.product([Wide, Broad], [2, 3, 4]), (Idle, 4)]
)
def test_ranks_may_go_either_way(make, world):
    """With more ranks fewer parts go at once, with as many as parts none."""
    options = {"module": make, "rows": 400, "regularization_lambda": 0.01}
    assert run(world, **options) == run(1, **options)


def test_a_leaf_is_laid_whole_whatever_it_held_before():
    """Leaves are used again, and are not cleared."""
    (group,) = groups.part_groups(Wide())
    leaf = torch.full((group.numel,), torch.nan)
    for parameter in group.parameters[1:]:
        parameter.grad = torch.ones_like(parameter)
    group.collect(leaf)
    idle = group.parameters[0].numel()
    trained = sum(each.numel() for each in group.parameters) - idle
    assert leaf.tolist() == [0.0] * idle + [1.0] * trained + [0.0] * (len(leaf) - idle - trained)
    group.collect(leaf.fill_(torch.nan))
    assert not leaf.count_nonzero()


def test_compiled_code_changes_nothing_but_speed(monkeypatch):
    found = run(2, module=Broad, rows=1200, micro_rows=2000)
    monkeypatch.setattr(products, "compiled", None)
    assert run(2, module=Broad, rows=1200, micro_rows=2000) == found


# ------------------------------------------------------------- mutants: each of these would be seen


def in_rank_order(monkeypatch):
    monkeypatch.setattr(
        Total, "__call__", lambda self, sums: sum(each.clone() for each in sums.values())
    )


def dropout_by_rank(monkeypatch):
    make = PartGradients.__init__

    def by_rank(self, module, losses, options, strategy, **more):
        make(self, module, losses, options, strategy, **more)
        self._mine = [strategy.rank.index] * len(self._mine)

    monkeypatch.setattr(PartGradients, "__init__", by_rank)


def parts_by_rank(monkeypatch):
    """A rank cuts what it has by itself: boundaries move with the number of ranks."""
    cut = parted

    def moved(batch, rank, parts):
        own = cut(batch, rank, parts)
        last = [0] * (len(own.part_rows) - 1)
        return Batch(own.packed, own.layout, part_rows=[own.rows, *last])

    monkeypatch.setattr(f"{__name__}.parted", moved)


def statistics_in_order_of_arrival(monkeypatch):
    """What a part leaves is what the next one begins with."""
    collect = groups.PartGroup.collect

    def arriving(self, leaf):
        kept = [each.clone() for each in (*self.buffers, *self.counters)]
        collect(self, leaf)
        for buffer, each in zip((*self.buffers, *self.counters), kept, strict=True):
            buffer.copy_(each)

    monkeypatch.setattr(groups.PartGroup, "collect", arriving)


def norm_over_a_ranks_rows(monkeypatch):
    def whole(self, batch, scale, step, *, counts=True):
        torch.default_generator.manual_seed(step)
        self._part(Batch(batch.packed, batch.layout), scale, self.sums[0])
        for number, branch in enumerate(self._branches):
            for index in range(branch.size):
                slots = [group.exchange.slots()[number] for group in self._groups]
                self._lay(slots, branch.size, index)
            if branch.size > 1:
                for group, slot in zip(self._groups, slots, strict=True):
                    group.adder.take(slot)
        return 0.0

    monkeypatch.setattr(PartGradients, "backward", whole)


MUTANTS = (
    in_rank_order,
    dropout_by_rank,
    parts_by_rank,
    statistics_in_order_of_arrival,
    norm_over_a_ranks_rows,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_in_the_construction_is_seen(mutant, monkeypatch):
    mutant(monkeypatch)
    expected, _ = run(1)
    assert any(run(world)[0] != expected for world in (2, 3)), "the fault does not show"


# ------------------------------------------------------------------ what is refused


def test_more_ranks_than_parts_are_refused():
    strategy = SingleProcess()
    strategy.rank = Rank(index=0, world=9)
    options = TrainerOptions.model_validate({"exact": True})
    with pytest.raises(
        ConfigError, match=r"trainer\.parts: 8 parts cannot be shared by 9 workers; set it to 16"
    ):
        Stepper(net(), TinyFeatures(), options, strategy, learning_rate=1.0, micro_rows=8, seed=0)


def test_a_device_that_is_no_cpu_is_refused():
    strategy = SingleProcess()
    strategy.device = torch.device("meta")
    options = TrainerOptions.model_validate({"exact": True})
    with pytest.raises(UserError, match=r"trainer\.exact holds on CPUs"):
        Stepper(net(), TinyFeatures(), options, strategy, learning_rate=1.0, micro_rows=8, seed=0)


def test_a_loader_without_parts_is_refused():
    options = TrainerOptions.model_validate({"exact": True})
    stepper = Stepper(
        net(), TinyFeatures(), options, SingleProcess(), learning_rate=1.0, micro_rows=8, seed=0
    )
    with pytest.raises(TrainingError, match=r"needs a loader that cuts batches into parts"):
        stepper.step(tiny_batch(16), 16, 0, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 6}, "parts 6 must be a power of two"),
        ({"exact": True, "compile": True}, "exact and compile"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        TrainerOptions.model_validate(options)


def test_the_plan_is_that_of_one_worker_whatever_their_number():
    options = TrainerOptions.model_validate({"exact": True, "batch_size": 50, "learning_rate": 0.1})
    plans = [TrainPlan.of(options, workers, 1001) for workers in (1, 3, 7)]
    assert {(plan.batch_rows, plan.learning_rate, plan.evaluation_rows) for plan in plans} == {
        (50, 0.1, 400)
    }


def test_a_plan_says_what_exact_means_and_nothing_if_it_is_off():
    (note,) = exact_notes(TrainerOptions.model_validate({"exact": True, "parts": 16}))
    assert note.startswith("Exact: a batch is computed in 16 parts")
    assert exact_notes(TrainerOptions.model_validate({})) == []


def test_torchs_threads_are_left_as_they_were():
    before = torch.get_num_threads()
    tiny_loop(TinyRun({"epochs": 1, "exact": True}), SingleProcess())[0].run()
    assert torch.get_num_threads() == before

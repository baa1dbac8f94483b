"""Ranks that act as one through Horovod: gradients as one flat buffer a step, whatever started the
ranks.

The loop's gradients are already divided by the rows of the global batch, so their sum over the
ranks is the average that Horovod's users mean. What travels may be scaled and shortened on its way,
as DistributedOptimizer does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError, UserError
from distcore_horovod import rendezvous
from distcore_horovod.process_group import AT_ONCE_BYTES
from distcore_torch.training.exact.exchange import Shares, SlicedTree, TreeExchange
from distcore_torch.training.flat import Exchange
from distcore_torch.training.plain import check_size, packed, unpacked
from distcore_torch.training.strategy import FlatStrategy, choose_device

if TYPE_CHECKING:
    from distcore_horovod.options import TrainerOptions


@dataclass(frozen=True)
class Wire:
    """How a buffer travels. before, after: factors around the sum; half: as 16-bit floats;
    result: a last factor."""

    before: float = 1.0
    after: float = 1.0
    half: bool = False
    result: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether the numbers travel as they are."""
        return self.before == 1.0 and not self.half

    @classmethod
    def of(cls, options: TrainerOptions, world: int) -> Wire:
        """Horovod sends each rank's mean gradient, divided by the factor; ours is the rank's share
        of the mean.

        With no option set nothing is scaled, so the bits are those of a plain sum."""
        half, divide = options.compression == "fp16", options.gradient_predivide_factor
        result = float(world) if options.op == "sum" else 1.0
        if not half and divide == 1.0:
            return cls(result=result)
        return cls(world / divide, divide / world, half, result)


class HorovodStrategy(FlatStrategy):
    """`Strategy` over horovod.torch. options: of the trainer."""

    def __init__(self, options: TrainerOptions) -> None:
        super().__init__()
        self.options = options
        self._joined = False
        self._sizes: dict[torch.dtype, list[int]] = {}

    def setup(self, rank: Rank) -> None:
        """Use what the launcher's processes have joined already, or meet the worker group's
        other ranks."""
        from distcore_horovod.installed import require

        require()
        self.rank = rank
        self.device = choose_device(self.options.use_gpu, rank.local_rank)
        if rank.world == 1:
            return
        import horovod.torch as hvd

        if not hvd.is_initialized():
            self._joined = True
            rendezvous.join(
                rank,
                allow_network=self.options.allow_network,
                fusion_threshold_mb=self.options.fusion_threshold_mb,
            )
        if hvd.size() != rank.world:
            raise TrainingError(
                f"Horovod joined {hvd.size()} ranks, but the worker group has {rank.world}. Report "
                "this."
            )
        if self.options.op == "adasum":
            self._check_adasum(hvd)

    def prepare(self, module: torch.nn.Module) -> None:
        parameters = [each for each in module.parameters() if each.requires_grad]
        self._sizes = {}
        for each in parameters:
            self._sizes.setdefault(each.dtype, []).append(each.numel())
        super().prepare(module)

    def all_reduce(self, values: torch.Tensor) -> None:
        if self.rank.world > 1:
            _summed(values, "distcore.sum")

    def gather(self, value: Any) -> list[Any]:
        if self.rank.world == 1:
            return [value]
        import horovod.torch as hvd

        mine = packed(value)
        sizes = [
            check_size(int(each))
            for each in hvd.allgather(torch.tensor([mine.numel()]), name="distcore.sizes")
        ]
        if sum(sizes) <= AT_ONCE_BYTES:
            return [
                unpacked(part) for part in hvd.allgather(mine, name="distcore.gather").split(sizes)
            ]
        return [unpacked(self._from(rank, mine, size)) for rank, size in enumerate(sizes)]

    def _from(self, rank: int, mine: torch.Tensor, size: int) -> torch.Tensor:
        """What one rank has of its own, in every rank."""
        import horovod.torch as hvd

        part = mine if rank == self.rank.index else torch.empty(size, dtype=torch.uint8)
        for piece in part.split(AT_ONCE_BYTES):
            hvd.broadcast_(piece, rank, name="distcore.gather.piece")
        return part

    def exchange(self, numel: int, dtype: torch.dtype) -> Exchange:
        buffer = torch.zeros(numel, dtype=dtype, device=self.device)
        sizes = self._sizes.get(dtype, [])
        if self.options.op == "adasum" and self.rank.world > 1:
            return AdaptiveSum(buffer, sizes, self.rank.world, str(dtype))
        wire = Wire.of(self.options, self.rank.world) if sizes else Wire()  # digests travel whole
        return WireSum(buffer, sum(sizes), wire, self.rank.world, str(dtype))

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        options = self.options
        if self.rank.world == 1:
            return super().tree_exchange(numel, dtype, parts)
        plain = {"op": "average", "compression": "none", "gradient_predivide_factor": 1.0}
        changed = [name for name, value in plain.items() if getattr(options, name) != value]
        if changed:
            raise UserError(
                f"trainer.exact goes without backend.trainer.{' and '.join(changed)}: what comes "
                "of it depends on the number of workers. Remove it, or set trainer.exact to false."
            )
        shares = Shares(self.rank, parts)
        name = f"distcore.tree.{dtype}"
        return SlicedTree(
            shares, numel, dtype, self.device, partial(_to_all, name), partial(_from_all, name)
        )

    def teardown(self) -> None:
        super().teardown()
        if self._joined:
            rendezvous.leave()
            self._joined = False

    def _check_adasum(self, hvd: Any) -> None:
        world = self.rank.world
        if not hvd.mpi_enabled():
            raise UserError(
                "backend.trainer.op adasum needs MPI: start with mpirun and a Horovod with MPI "
                "(distcore-horovod build --mpi yes --install), or choose op average."
            )
        if world & (world - 1):
            raise UserError(
                f"backend.trainer.op adasum needs 2, 4, 8, … ranks, but there are {world}."
            )


class WireSum:
    """An `Exchange`: one all-reduce of the flat buffer; of its first `gradients` numbers as the
    wire says.

    What lies behind the gradients (running statistics, the stop flag) is never scaled, nor
    shortened if there is more of it than the flag."""

    def __init__(
        self, buffer: torch.Tensor, gradients: int, wire: Wire, world: int, name: str
    ) -> None:
        self._buffer, self._wire, self._world = buffer, wire, world
        together = wire.plain or buffer.numel() == gradients + 1
        self._cut = buffer.numel() if together else gradients
        self._gradients = gradients
        self._name = f"distcore.flat.{name}"

    def slot(self) -> torch.Tensor:
        return self._buffer

    def sum(self) -> torch.Tensor:
        wire = self._wire
        if self._world > 1:
            parts = [(self._buffer[: self._cut], self._name, wire)]
            if self._cut < self._buffer.numel():
                parts.append((self._buffer[self._cut :], f"{self._name}.rest", Wire()))
            for part, name, how in parts:
                _sent(part, name, how)
        if wire.result != 1.0:
            self._buffer[: self._gradients].mul_(wire.result)
        return self._buffer

    def close(self) -> None:
        """Nothing is held."""


class AdaptiveSum:
    """An `Exchange`: Horovod's Adasum of each parameter's gradient, as each rank's own mean; the
    rest is summed."""

    def __init__(self, buffer: torch.Tensor, sizes: list[int], world: int, name: str) -> None:
        self._buffer, self._world = buffer, world
        self._name = f"distcore.adasum.{name}"
        self._parts = list(buffer[: sum(sizes)].split(sizes))
        self._rest = buffer[sum(sizes) :]

    def slot(self) -> torch.Tensor:
        return self._buffer

    def sum(self) -> torch.Tensor:
        import horovod.torch as hvd

        for part in self._parts:
            part.mul_(self._world)
        handles = [
            hvd.allreduce_async_(part, op=hvd.Adasum, name=f"{self._name}.{index}")
            for index, part in enumerate(self._parts)
        ]
        _summed(self._rest, f"{self._name}.rest")
        for handle in handles:
            hvd.synchronize(handle)
        return self._buffer

    def close(self) -> None:
        """Nothing is held."""


def _sent(values: torch.Tensor, name: str, wire: Wire) -> None:
    """Sum in place over the ranks, scaled and shortened on the way."""
    if wire.plain:
        _summed(values, name)
        return
    travelling = (values * wire.before).half() if wire.half else values.mul_(wire.before)
    _summed(travelling, name)
    if wire.half:
        values.copy_(travelling)
    values.mul_(wire.after)


def _summed(values: torch.Tensor, name: str) -> None:
    """Sum in place over the ranks. A GPU's numbers go through memory if Horovod was built
    without NCCL."""
    import horovod.torch as hvd

    if values.is_cuda and not hvd.nccl_built():
        held = values.cpu()
        hvd.allreduce_(held, op=hvd.Sum, name=name)
        values.copy_(held)
    else:
        hvd.allreduce_(values, op=hvd.Sum, name=name)


def _to_all(name: str, values: torch.Tensor, sent: Sequence[int], _: Sequence[int]) -> torch.Tensor:
    import horovod.torch as hvd

    found, _counts = hvd.alltoall(
        values, torch.tensor(list(sent), dtype=torch.int32), name=f"{name}.slices"
    )
    return found


def _from_all(name: str, values: torch.Tensor) -> torch.Tensor:
    import horovod.torch as hvd

    return hvd.allgather(values, name=f"{name}.gather")

"""How ranks act as one: the Strategy that the loop asks, for one process, and the half that all
real ones share.

The loop calls `reduce` once a step and the rest once a round. Whatever it is asked, every rank of
the group asks in the same order. A new library (Horovod, …) is a subclass of `FlatStrategy` with
three methods.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Literal, Protocol

import torch

from distcore_core.contracts import Rank
from distcore_core.errors import UserError
from distcore_torch.training.exact.exchange import GatheredTree, OwnTree, Shares, TreeExchange
from distcore_torch.training.flat import Exchange, FlatGroup, InPlace, flat_groups
from distcore_torch.training.heartbeat import WAITING, Heartbeat
from distcore_torch.training.raw import raw_bytes, shows_a_number_twice

STOP_EVERY = 16
"""Steps between two looks at the stop flag where looking waits for a GPU."""


PATIENCE_SECONDS = 1800.0
"""How long a collective waits for the slowest rank: a checkpoint or an evaluation may lie
between two steps."""


class Strategy(Protocol):
    """rank, device: known after `setup`."""

    @property
    def rank(self) -> Rank: ...

    @property
    def device(self) -> torch.device: ...

    def setup(self, rank: Rank) -> None:
        """Join the worker group; choose the device.

        Args:
            rank: Which one this process is.

        Raises:
            UserError: There is no such device, or no such group.
        """
        ...

    def prepare(self, module: torch.nn.Module) -> None:
        """Give every rank rank 0's weights and buffers, and get ready to reduce gradients.

        Args:
            module: Whose; the same in every rank.
        """
        ...

    def reduce(self, stop: bool = False) -> bool:
        """Sum the gradients over the ranks, in place, to the same bits everywhere; a missing
        gradient counts as zeros.

        Args:
            stop: This rank wants to stop.

        Returns:
            Whether any rank does; every rank gets the same answer.
        """
        ...

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        """Where the ranks' branches of a flat buffer are added along the tree of exact training.

        Args:
            numel, dtype: Of the buffer.
            parts: Leaves of the tree, a power of two.
        """
        ...

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of a small tensor.

        Args:
            values: Of any shape, the same in every rank.

        Returns:
            The same bits everywhere.
        """
        ...

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in every rank. Also a barrier.

        Args:
            value: What `training.plain` can carry.

        Returns:
            In rank order.
        """
        ...

    def teardown(self) -> None:
        """Leave the worker group; also called after an error."""
        ...


def has_gpu(use_gpu: bool | Literal["auto"]) -> bool:
    """Whether a rank here works on a GPU. Raises UserError if there is none and one is asked
    for."""
    available = torch.cuda.is_available() if use_gpu else False
    if use_gpu is True and not available:
        raise UserError(
            "backend.trainer.use_gpu is true, but torch sees no GPU here. "
            "Install a CUDA build of torch and its driver, or set use_gpu to auto or false."
        )
    return available


def choose_device(use_gpu: bool | Literal["auto"], local_rank: int) -> torch.device:
    """The GPU of this process on its machine, or the CPU. Raises UserError if there is none and
    one is asked for."""
    if not has_gpu(use_gpu):
        return torch.device("cpu")
    # What cuBLAS needs to add in one order; it is read when torch first multiplies.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


class SingleProcess:
    """One rank: nothing to reduce."""

    def __init__(self, use_gpu: bool | Literal["auto"] = False) -> None:
        self.use_gpu = use_gpu
        self.rank = Rank()
        self.device = torch.device("cpu")

    def setup(self, rank: Rank) -> None:
        """Raises UserError if there are other ranks: without one another they would train apart."""
        if rank.world > 1:
            raise UserError(
                f"This process is rank {rank.index} of {rank.world}, but its trainer is one "
                "process. Choose backend.trainer data_parallel, or start it without a launcher "
                "such as torchrun."
            )
        self.rank = rank
        self.device = choose_device(self.use_gpu, rank.local_rank)

    def prepare(self, module: torch.nn.Module) -> None:
        """Nothing: there is no other rank."""

    def reduce(self, stop: bool = False) -> bool:
        return stop

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        return OwnTree(numel, dtype, self.device)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def teardown(self) -> None:
        """Nothing was joined."""


class FlatStrategy(ABC):
    """Everything but the collectives: gradients and running statistics travel as one flat buffer a
    step.

    A subclass joins its library in `setup` (setting `rank` and `device`), sums a tensor in place,
    and gathers values.
    patience: seconds that a collective waits for the slowest rank; set before `setup` if the run
        has a limit.
    """

    rank: Rank
    device: torch.device
    patience: float = PATIENCE_SECONDS

    def __init__(self) -> None:
        self.rank = Rank()
        self.device = torch.device("cpu")
        self._groups: list[FlatGroup] = []
        self._exchanges: list[Exchange] = []
        self._reductions = 0

    @abstractmethod
    def setup(self, rank: Rank) -> None: ...

    @abstractmethod
    def all_reduce(self, values: torch.Tensor) -> None:
        """Sum over the ranks in place; every rank must get the same bits."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]: ...

    def exchange(self, numel: int, dtype: torch.dtype) -> Exchange:
        """Where a flat buffer of this size is summed; a subclass may know a faster way."""
        return InPlace(torch.zeros(numel, dtype=dtype, device=self.device), self.all_reduce)

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        """A subclass may know a way that sends less."""
        if self.rank.world == 1:
            return OwnTree(numel, dtype, self.device)
        shares = Shares(self.rank, parts)
        return GatheredTree(shares, numel, dtype, self.device, self.all_reduce)

    def prepare(self, module: torch.nn.Module) -> None:
        self._close()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.layout is not torch.strided or shows_a_number_twice(tensor):
                raise UserError(
                    f"{name} is sparse, or a view that shows one number in several places "
                    "(expand), and cannot be copied from the first worker to the others. Keep it "
                    "dense and in memory of its own (.clone()), or choose the trainer local."
                )
            self._copy_from_first(tensor)
        self._groups = flat_groups(module)
        self._reductions = 0

    @torch.no_grad()
    def reduce(self, stop: bool = False) -> bool:
        if not self._exchanges:
            self._exchanges = [self.exchange(group.numel, group.dtype) for group in self._groups]
        asked = False
        self._reductions += 1
        for group, exchange in zip(self._groups, self._exchanges, strict=True):
            group.collect(exchange.slot(), stop)
            asked |= group.spread(exchange.sum(), self.rank.world, self._looks())
        return asked

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        # A ring of more than two ranks adds in another order for each part; gathered, all add in
        # rank order.
        total = torch.stack(self.gather(values.cpu())).sum(0)
        return total.to(values.device)

    def teardown(self) -> None:
        self._close()

    def _close(self) -> None:
        for exchange in self._exchanges:
            exchange.close()
        self._groups, self._exchanges = [], []

    def _looks(self) -> bool:
        return self.device.type == "cpu" or self._reductions % STOP_EVERY == 0

    @torch.no_grad()
    def _copy_from_first(self, tensor: torch.Tensor) -> None:
        """Rank 0's bits to all: everyone else adds zeros, and adding zeros to the bits as
        integers is exact."""
        flat = raw_bytes(tensor).to(torch.int32)
        if self.rank.index:
            flat.zero_()
        if flat.numel():
            self.all_reduce(flat)
        tensor.copy_(flat.to(torch.uint8).view(tensor.dtype).reshape(tensor.shape))


class Waiting:
    """A strategy whose heartbeat says so while it waits for the other ranks."""

    def __init__(self, strategy: Strategy, beat: Heartbeat) -> None:
        self._strategy, self._beat = strategy, beat

    @property
    def rank(self) -> Rank:
        return self._strategy.rank

    @property
    def device(self) -> torch.device:
        return self._strategy.device

    def setup(self, rank: Rank) -> None:
        with self._beat.during(WAITING):
            self._strategy.setup(rank)

    def prepare(self, module: torch.nn.Module) -> None:
        with self._beat.during(WAITING):
            self._strategy.prepare(module)

    def reduce(self, stop: bool = False) -> bool:
        if self._strategy.rank.world == 1:
            return self._strategy.reduce(stop)
        with self._beat.during(WAITING):
            return self._strategy.reduce(stop)

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        with self._beat.during(WAITING):
            return _WaitingTree(self._strategy.tree_exchange(numel, dtype, parts), self._beat)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        with self._beat.during(WAITING):
            return self._strategy.sum(values)

    def gather(self, value: Any) -> list[Any]:
        with self._beat.during(WAITING):
            return self._strategy.gather(value)

    def teardown(self) -> None:
        self._strategy.teardown()


class _WaitingTree:
    """A `TreeExchange` whose heartbeat says so while it waits for the other ranks."""

    def __init__(self, exchange: TreeExchange, beat: Heartbeat) -> None:
        self._exchange, self._beat = exchange, beat
        self.slots, self.close = exchange.slots, exchange.close

    def sum(self) -> torch.Tensor:
        with self._beat.during(WAITING):
            return self._exchange.sum()

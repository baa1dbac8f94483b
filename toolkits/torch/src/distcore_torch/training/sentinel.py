"""The sentinel: finds a bit that flipped in a rank's weights or optimizer state, and says whose and
where.

Between two updates nothing changes weights and optimizer state, and after an update every rank has
the same. So after every n-th step each rank takes the fingerprint of both, and right before the
next update it takes it again: - another one than it left behind: a bit flipped in this rank's
memory, and which one can be computed; - another one than the other ranks have: something happened
since the last look; most ranks are right. The same look is taken before a checkpoint, so none is
saved after a flip that another rank can see.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import torch

from distcore_core.contracts import JSON
from distcore_core.errors import CheckpointError, TrainingError
from distcore_data.printable import listed
from distcore_torch.training.facts import changes, of_group, rank_facts
from distcore_torch.training.fingerprint import MASK, Fingerprint, hexadecimal
from distcore_torch.training.flat import Exchange
from distcore_torch.training.heartbeat import WAITING, Heartbeat
from distcore_torch.training.ledger import Ledger
from distcore_torch.training.optim import CLASSES, state_tensors
from distcore_torch.training.strategy import FlatStrategy, Strategy

log = logging.getLogger("distcore")

GOING_ON_ELSEWHERE = (
    "This run goes on with something else than it began with: %s. Its bits may be others from here "
    "on."
)

SHOWN = 3
"""Tensors that are named one by one."""


class Totals(NamedTuple):
    """Fingerprints of parameters, buffers and optimizer state."""

    parameters: int
    buffers: int
    optimizer: int

    @property
    def weights(self) -> int:
        """What the ledger holds."""
        return (self.parameters + self.buffers) & MASK

    @property
    def still(self) -> int:
        """Of what does not change between two updates; a forward pass changes buffers."""
        return (self.parameters + self.optimizer) & MASK


Named = list[tuple[str, torch.Tensor]]

Taken = Callable[[], Totals]
"""Totals of a moment that has passed; waits for them if they are still under way."""


class Sentinel:
    """Looks at one rank's weights and optimizer state, and writes the ledger.

    Args:
        module: On its device.
        optimizer: Its own state is looked at too.
        strategy: Prepared; not one that says when it waits, because `beat` does.
        every: Steps between two looks; 0: only when asked.
        beat: Says so while it waits for the other ranks.
        ledger: Where rank 0 writes to; None: nowhere.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        strategy: Strategy,
        every: int,
        beat: Heartbeat,
        ledger: Ledger | None,
    ) -> None:
        self._module, self._optimizer, self._strategy = module, optimizer, strategy
        self._every, self._beat, self._ledger = every, beat, ledger
        self._board = _Board(strategy)
        # L-BFGS, and optimizers of others, may put new tensors in place of old ones.
        self._in_place = type(optimizer) in CLASSES.values() and not isinstance(
            optimizer, torch.optim.LBFGS
        )
        # A GPU by itself is asked and not waited for: what it says is there by the next look.
        self._asks = strategy.device.type == "cuda" and strategy.rank.world == 1
        self._parts: tuple[Fingerprint, Fingerprint, Fingerprint] | None = None
        self._left: Taken | None = None
        self._step = 0
        self._unwritten: tuple[int, Taken] | None = None
        self._compared: tuple[int, Taken, Taken] | None = None

    # -------------------------------------------------------------- what the loop calls

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Training begins after this many steps; it is over when the block ends. A collective."""
        self._parts = None  # a checkpoint may have brought others
        ranks = self._strategy.gather(rank_facts(str(self._strategy.device), self._module))
        if self._ledger is not None:
            now = of_group(ranks)
            before = self._ledger.begin(step, now)
            if before is not None and (found := changes(before, now)):
                log.warning(GOING_ON_ELSEWHERE, " and ".join(found))
        self._leave(step)
        try:
            yield
        finally:
            self._board.close()
            if self._ledger is not None:
                # Of a run that ends by another error; a GPU after a fault gives no numbers.
                with suppress(RuntimeError):
                    self._write_asked()
                with suppress(CheckpointError):
                    self._ledger.write(self._ledger.waiting())

    def stepped(self, step: int) -> None:
        """This many steps are done."""
        if self._every and step % self._every == 0:
            self._leave(step)

    def before_update(self) -> None:
        """Weights and optimizer state change next: look, if something was left behind."""
        if self._left is None:
            return
        if self._asks:
            self._compared = self._step, self._left, self._taken()
        else:
            self.look(self._step)
        self._left = None

    def look(self, step: int, saving: bool = False) -> None:
        """Compare with what this rank left behind after the step, and with the other ranks. A
        collective.

        Args:
            step: Steps that are done.
            saving: For a checkpoint: the ledger gets the optimizer's fingerprint too.

        Raises:
            TrainingError: In every rank, naming rank and tensor.
        """
        self._settle()
        now, left = self._taken()(), self._left and self._left()
        changed = left is not None and left.still != now.still
        with self._beat.during(WAITING):
            seen = self._board.all(now.still, changed)
        if any(flag for _, flag in seen) or len({value for value, _ in seen}) > 1:
            self._accuse(step, changed)
        self._left, self._step = (lambda: now), step
        self._write(step, now, saving)

    # -------------------------------------------------------------- inside

    def _leave(self, step: int) -> None:
        """Remember what this rank leaves behind after the step."""
        self._settle()
        self._left, self._step = self._taken(), step
        self._unwritten = step, self._left
        if not self._asks:
            self._write_asked()

    def _settle(self) -> None:
        """Take what was asked for: write it, and compare it."""
        self._write_asked()
        if self._compared is not None:
            (step, left, now), self._compared = self._compared, None
            if left().still != now().still:
                self._accuse(step, changed=True)

    def _write_asked(self) -> None:
        if self._unwritten is not None:
            (step, taken), self._unwritten = self._unwritten, None
            self._write(step, taken(), False)

    def _write(self, step: int, totals: Totals, saving: bool) -> None:
        if self._ledger is not None:
            optimizer = hexadecimal(totals.optimizer) if saving else ""
            self._ledger.add(step, hexadecimal(totals.weights), optimizer)

    def _taken(self) -> Taken:
        parts = self._parts
        if parts is None or not (
            self._in_place and all(each.stands() for each in parts) and len(parts[2])
        ):
            parts = self._parts = self._made()
        if self._asks:
            return _asked(parts)
        found = Totals(*(each.total() for each in parts))
        return lambda: found

    def _made(self) -> tuple[Fingerprint, Fingerprint, Fingerprint]:
        names = {id(each): name for name, each in self._module.named_parameters()}
        parameters, buffers = _saved(self._module)
        numbered = [each for group in self._optimizer.param_groups for each in group["params"]]
        state = []
        for path, each in state_tensors(self._optimizer):
            number, _, rest = path.removeprefix("optimizer/").partition(".")
            state.append((f"{names.get(id(numbered[int(number)]), number)} ({rest})", each))
        return Fingerprint(parameters), Fingerprint(buffers), Fingerprint(state)

    def _accuse(self, step: int, changed: bool) -> None:
        """Raise, in every rank, what is known of who changed. changed: whether this rank did."""
        assert self._parts is not None
        parameters, _, state = self._parts
        where = [*parameters.changed(), *state.changed()] if changed else []
        each = {**parameters.each(), **state.each()}
        mine = {"changed": changed, "where": where, "each": each}
        raise TrainingError(accusation(step, self._strategy.gather(mine)))


def accusation(step: int, ranks: list[JSON]) -> str:
    """What to say of ranks that differ, or have changed by themselves.

    Args:
        step: Of the last look.
        ranks: Of each rank: `changed`, whether it has other bits than it left behind; `where`, what
            flipped, as `Fingerprint.changed` tells it; `each`, the fingerprints of its tensors.
    """
    for rank, found in enumerate(ranks):
        if found["changed"]:
            what = listed(found["where"], SHOWN) or _differing(rank, ranks)
            return (
                f"After step {step} the memory of rank {rank} changed by itself: "
                f"{what or 'weights or optimizer state'} is not what the rank left behind. {FAULT}"
            )
    common, votes = Counter(tuple(each["each"].values()) for each in ranks).most_common(1)[0]
    others = [rank for rank, each in enumerate(ranks) if tuple(each["each"].values()) != common]
    if 2 * votes <= len(ranks):
        named = (
            " and ".join(map(str, range(len(ranks))))
            if len(ranks) == 2
            else f"0 to {len(ranks) - 1}"
        )
        return (
            f"After step {step} ranks {named} differ in {_differing(others[0], ranks)}, and no "
            f"majority tells which of them is wrong; trainer.ledger_steps: 1 would. {APART}"
        )
    return (
        f"After step {step} rank {', '.join(map(str, others))} of {len(ranks)} differs from the "
        f"others in {_differing(others[0], ranks)}. {APART}"
    )


FAULT = (
    "That is a fault of its machine's memory or processor, or of code that writes into the weights "
    "between steps; nothing was saved since."
)
APART = (
    "A bit flipped in a rank's memory, or the ranks have trained apart: look for code that uses "
    "random numbers or the rank in the model. Nothing was saved since."
)


def _differing(rank: int, ranks: list[JSON]) -> str:
    """The tensors in which a rank differs from the first of the others, in words."""
    other = next((each["each"] for number, each in enumerate(ranks) if number != rank), None)
    if other is None:
        return ""
    names = [name for name, value in ranks[rank]["each"].items() if other.get(name) != value]
    # What flipped in a moment is in its weights one update later, but not the other way round.
    names = [name for name in names if name.endswith(")")] or names
    return listed(names, SHOWN)


def _saved(module: torch.nn.Module) -> tuple[Named, Named]:
    """What is saved of a module: parameters, and whatever else a forward pass may change. What has
    a name of its own there may be a part of a parameter."""
    memory = {each.untyped_storage().data_ptr() for each in module.parameters()}
    found: tuple[Named, Named] = [], []
    for name, each in module.state_dict().items():
        if isinstance(each, torch.Tensor):
            found[each.untyped_storage().data_ptr() not in memory].append((name, each))
    return found


def _asked(parts: Sequence[Fingerprint]) -> Taken:
    """Totals that a GPU computes beside what comes after; copied to memory that it can write."""
    constants, values = zip(*(each.later() for each in parts), strict=True)
    here = torch.stack([value for each in values for value in each])
    there = torch.empty(here.shape, dtype=here.dtype, pin_memory=True)
    there.copy_(here, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def totals() -> Totals:
        done.synchronize()
        numbers = iter(there.tolist())
        return Totals(
            *(
                (constant + sum(next(numbers) for _ in each)) & MASK
                for constant, each in zip(constants, values, strict=True)
            )
        )

    return totals


class _Board:
    """Where every rank shows a number of 64 bits and a flag, and sees those of all."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy, self._rank = strategy, strategy.rank
        self._exchange: Exchange | None = None
        if isinstance(strategy, FlatStrategy) and self._rank.world > 1:
            self._exchange = strategy.exchange(2 * self._rank.world, torch.int64)

    def all(self, value: int, flag: bool) -> list[tuple[int, bool]]:
        """What every rank shows, in rank order."""
        if self._rank.world == 1:
            return [(value, flag)]
        if self._exchange is None:
            return [(int(one), bool(other)) for one, other in self._strategy.gather([value, flag])]
        slot = self._exchange.slot()
        slot.zero_()
        at = 2 * self._rank.index
        slot[at], slot[at + 1] = value - (1 << 64) if value >> 63 else value, int(flag)
        shown = self._exchange.sum().tolist()
        return [
            (one & MASK, bool(other)) for one, other in zip(shown[::2], shown[1::2], strict=True)
        ]

    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()

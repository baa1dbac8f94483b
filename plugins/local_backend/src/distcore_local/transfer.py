"""Batches on their way to a device: on CUDA through pinned memory, on a stream of their own."""

from __future__ import annotations

import torch

from distcore_torch.batch import Batch, Ragged


class Transfer:
    """`send` in the thread that makes batches, `receive` in the thread that uses them."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None

    def send(self, batch: Batch) -> tuple[Batch, torch.cuda.Event | None]:
        """Start the copy. The event is recorded when it is done."""
        if self._device.type == "cpu":
            return batch, None
        if self._stream is None:
            return batch.to(self._device), None
        with torch.cuda.stream(self._stream):
            moved = _pinned(batch).to(self._device, non_blocking=True)
            return moved, self._stream.record_event()

    def receive(self, batch: Batch, event: torch.cuda.Event | None) -> Batch:
        """Have the current stream wait for the copy; the host does not wait."""
        if event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            for tensor in _tensors(batch):
                tensor.record_stream(current)
        return batch


def _pinned(batch: Batch) -> Batch:
    # torch keeps pinned memory for the next one, and hands it out again only after the copies from
    # it are done.
    ragged = {
        name: Ragged(*(part.pin_memory() for part in column))
        for name, column in batch.ragged.items()
    }
    return Batch(batch.packed.pin_memory(), batch.layout, ragged, batch.start)


def _tensors(batch: Batch) -> list[torch.Tensor]:
    return [batch.packed, *(part for column in batch.ragged.values() for part in column)]

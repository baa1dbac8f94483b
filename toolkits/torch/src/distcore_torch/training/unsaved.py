"""Buffers that training changes and no file keeps."""

from __future__ import annotations

import logging

import torch

log = logging.getLogger("distcore")


class UnsavedBuffers:
    """Those of a module that are not in its state, as they are now."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._before = self._now()

    def look(self) -> None:
        """Warn once of those that have changed since."""
        now = self._now() if self._before else {}
        changed = [
            name
            for name, each in self._before.items()
            if name in now and not torch.equal(each, now[name])
        ]
        if changed:
            log.warning(
                "Training changes the buffer %s of %s, which is registered with persistent=False: "
                "neither the model nor a checkpoint has it, so predictions begin with what "
                "__init__ gives it. Register it without.",
                changed[0],
                type(self._module).__qualname__,
            )
            self._before = {}

    def _now(self) -> dict[str, torch.Tensor]:
        saved = self._module.state_dict()
        return {
            name: each.clone() for name, each in self._module.named_buffers() if name not in saved
        }

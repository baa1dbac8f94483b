"""What distcore-torch offers: the section `trainer`."""

from __future__ import annotations

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_config_section(name: str) -> type | None:
    if name != "trainer":
        return None
    from distcore_torch.train_options import TrainerOptions

    return TrainerOptions

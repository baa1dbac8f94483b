"""What torch trainers are made with: batches, the sampler, the training loop, strategies,
checkpoints, scores.

What is public is exported here, and imported when it is first used; `distcore_core.plugin` has the
roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore_torch.bags import embedding_bag
    from distcore_torch.batch import Batch, Layout, Ragged
    from distcore_torch.packing import pack
    from distcore_torch.products import linear
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.bound import BoundTrainer
    from distcore_torch.training.callbacks import Callback
    from distcore_torch.training.meeting import fresh_store, stay_on_loopback
    from distcore_torch.training.open_job import tell_checkpoint
    from distcore_torch.training.plain import packed, unpacked
    from distcore_torch.training.scores import Scores
    from distcore_torch.training.strategy import FlatStrategy, SingleProcess, Strategy
    from distcore_torch.training.trainer import TorchTrainer

__all__ = [
    "Batch",
    "BoundTrainer",
    "Callback",
    "FlatStrategy",
    "Layout",
    "Ragged",
    "Scores",
    "SingleProcess",
    "Strategy",
    "TorchTrainer",
    "TrainerOptions",
    "embedding_bag",
    "fresh_store",
    "linear",
    "pack",
    "packed",
    "stay_on_loopback",
    "tell_checkpoint",
    "unpacked",
]

__getattr__ = on_first_use(
    __name__,
    {
        "Batch": "batch",
        "BoundTrainer": "training.bound",
        "Callback": "training.callbacks",
        "FlatStrategy": "training.strategy",
        "Layout": "batch",
        "Ragged": "batch",
        "Scores": "training.scores",
        "SingleProcess": "training.strategy",
        "Strategy": "training.strategy",
        "TorchTrainer": "training.trainer",
        "TrainerOptions": "train_options",
        "embedding_bag": "bags",
        "fresh_store": "training.meeting",
        "linear": "products",
        "pack": "packing",
        "packed": "training.plain",
        "stay_on_loopback": "training.meeting",
        "tell_checkpoint": "training.open_job",
        "unpacked": "training.plain",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

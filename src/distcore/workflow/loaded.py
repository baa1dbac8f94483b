"""A saved model in the hands of a Python program: opened, and asked for predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_data.artifact import Artifact, open_artifact

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_data.stores import Credentials


class LoadedModel(Artifact):
    """What `distcore.load` gives."""

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False, credentials: Credentials | None = None) -> LoadedModel:
        """The model in a folder or a bucket. Arguments and errors: see `open_artifact`."""
        return cls(**vars(open_artifact(path, trust=trust, credentials=credentials)))

    def predict(self, dataset: Any, batch_size: int | None = None, data_format: str | None = None) -> pa.Table:
        """Predictions for every row of a frame, path or URL, in its order (columns: `FeatureNetwork.predictions`)."""
        import pyarrow as pa

        from distcore_torch.prediction import predict_stream

        return pa.Table.from_batches(
            list(predict_stream(self, dataset, batch_size=batch_size, data_format=data_format))
        )

"""A saved model in the hands of a Python program: opened, and asked for predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from distcore_core.contracts import JSON
from distcore_core.errors import DataError
from distcore_data.artifact import Artifact, open_artifact
from distcore_data.printable import printable
from distcore_torch.modes import plain_torch

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_data.stores import Credentials


class LoadedModel(Artifact):
    """What `distcore.load` gives."""

    @classmethod
    def open(
        cls, path: str | Path, *, trust: bool = False, credentials: Credentials | None = None
    ) -> LoadedModel:
        """The model in a folder or a bucket. Arguments and errors: see `open_artifact`."""
        return cls(**vars(open_artifact(path, trust=trust, credentials=credentials)))

    @property
    def columns(self) -> dict[str, str]:
        """What a dataset must have for `predict`: {column: the type of the feature that reads it},
        in the config's order; of a column that several features read, the first."""
        found: dict[str, str] = {}
        for each in self.manifest["features"]:
            if each["role"] == "input":
                found.setdefault(each["column"], each["type"])
        return found

    def evaluate(
        self, dataset: Any, batch_size: int | None = None, data_format: str | None = None
    ) -> JSON:
        """Metrics on rows that hold their targets.

        Args:
            dataset, batch_size, data_format: As those of `predict`.

        Returns:
            {output feature: {metric: number}}.

        Raises:
            DataError: There is no row whose targets are known, or the dataset cannot be read.
        """
        from distcore_core.progress import Progress
        from distcore_torch.evaluation import Evaluation
        from distcore_torch.prediction import encoded_stream, rows_of, scored_batches

        asked = ("input", "output")
        with plain_torch(), encoded_stream(self, dataset, asked, data_format) as (source, stream):
            evaluation = Evaluation(self.features)
            batches = scored_batches(self, stream, rows_of(batch_size), None, evaluation.cut)
            for _ in evaluation.run(batches, Progress()):
                continue
            source.check_unchanged()
            if not evaluation.rows:
                raise DataError(
                    "There is nothing to evaluate: no row has all of its targets. Give rows that "
                    "have them."
                )
            return evaluation.statistics()

    def __repr__(self) -> str:
        names = ", ".join(printable(each.name) for each in self.features.outputs)
        return f"<{type(self).__name__} of {self._address}: predicts {names}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A loaded model is neither pickled nor copied. Load it where it is needed: "
            f"distcore.load({self._address!r})."
        )

    @property
    def _address(self) -> str:
        return str(self.place) if isinstance(self.place, Path) else self.place.url

    def _repr_html_(self) -> str:
        from distcore.workflow.shown import html_of_model

        return html_of_model(self)

    def predict(
        self, dataset: Any, batch_size: int | None = None, data_format: str | None = None
    ) -> pa.Table:
        """Predictions for every row, in the rows' order.

        Args:
            dataset: A path or URL, a frame (pandas, polars, pyarrow, DuckDB) or a dict of lists.
            batch_size: Rows at a time; None for a size that fits.
            data_format: Of a path; None to tell it by its ending.

        Returns:
            `<output>_predictions`; of classes also `<output>_probabilities_<class>` for each and
            `<output>_probability`, that of the one that is predicted. Nulls where a row misses an
            input whose missing_value_strategy is drop_row.

        Raises:
            DataError: The dataset cannot be read, or lacks a column.
        """
        import pyarrow as pa

        from distcore_torch.prediction import predict_stream

        with plain_torch():
            return pa.Table.from_batches(
                list(predict_stream(self, dataset, batch_size=batch_size, data_format=data_format))
            )

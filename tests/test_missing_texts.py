"""What a missing text or set becomes when other rows decide it, or when its row goes."""

import pyarrow as pa
import pytest

import distcore
from distcore_data.cache import open_cache

ROWS = 60
HOLES = [None if row % 4 == 1 else f"w{row % 7} of" for row in range(ROWS)]
FILLED = {
    "bfill": [HOLES[row + 1] if text is None else text for row, text in enumerate(HOLES)],
    "ffill": [HOLES[row - 1] if text is None else text for row, text in enumerate(HOLES)],
    "drop_row": HOLES,
}


def encoded(folder, kind, strategy, texts):
    """{number of the row: codes of its text} of every row of every split."""
    table = pa.table(
        {
            "t": texts,
            "n": [float(row) for row in range(ROWS)],
            "y": [row % 3 == 0 for row in range(ROWS)],
        }
    )
    feature = {"name": "t", "type": kind, "preprocessing": {"missing_value_strategy": strategy}}
    config = {
        "input_features": [feature, {"name": "n", "type": "number"}],
        "output_features": [{"name": "y", "type": "binary"}],
        "backend": {"cache_dir": str(folder)},
    }
    cache = distcore.preprocess(config, table)
    found = {}
    with open_cache(cache) as reader:
        for split in reader.manifest["splits"]:
            rows = reader.rows(split)
            codes = reader.read(split, 0, rows, ["t"]).column("t").to_pylist() if rows else []
            found |= dict(zip(reader.row_numbers(split).tolist(), codes, strict=True))
    return found


@pytest.mark.parametrize("kind", ["text", "set"])
@pytest.mark.parametrize("strategy", FILLED)
def test_the_strategy_that_is_named_is_carried_out(tmp_path, kind, strategy):
    found = encoded(tmp_path / "a", kind, strategy, HOLES)
    wanted = encoded(tmp_path / "b", kind, "fill_with_const", FILLED[strategy])
    if strategy == "drop_row":
        wanted = {row: codes for row, codes in wanted.items() if HOLES[row] is not None}
    assert found == wanted

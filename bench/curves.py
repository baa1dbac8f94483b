"""growth.svg: what one more of something costs at each size, and the memory of the whole, from the
rows of stage_growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "growth.svg"


def draw(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the picture.

    Args:
        folder: Where.
        rows: Of the stage, as results.json has them: two sizes and their peaks in `more`.
    """
    import matplotlib

    matplotlib.use("svg")
    # The same figures give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": NAME, "font.size": 8, "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    curves: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault(row["what"].partition(",")[0], []).append(row)
    picture, axes = plt.subplots(2, len(curves), figsize=(2.6 * len(curves), 4.2), sharex="col")
    for (what, found), cost, memory in zip(curves.items(), axes[0], axes[1], strict=True):
        pairs = [row["more"]["sizes"] for row in found]
        middles = [(low * high) ** 0.5 for low, high in pairs]
        cost.plot(middles, [row["ours"] for row in found], "o-")
        cost.set(title=what, xscale="log", ylim=(0, 1.3 * max(row["ours"] for row in found)))
        first, *_ = found
        sizes = [first["more"]["sizes"][0], *(high for _, high in pairs)]
        peaks = [first["more"]["peak_mb"][0], *(row["more"]["peak_mb"][1] for row in found)]
        memory.plot(sizes, peaks, "o-")
        memory.set(xscale="log", ylim=(0, 1.3 * max(peaks)))
        memory.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30, ha="right")
        memory.minorticks_off()
    axes[0][0].set_ylabel("µs of processor, one more")
    axes[1][0].set_ylabel("peak MB, the whole")
    picture.tight_layout()
    picture.savefig(folder / NAME, metadata={"Date": None})
    plt.close(picture)

"""Reports of a regression, a binary, a multiclass, a set and a text example in a real browser:
wide, narrow, dark."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import distcore

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
if BROWSER is None and os.environ.get("DISTCORE_REQUIRE_CHROMIUM"):
    raise RuntimeError("DISTCORE_REQUIRE_CHROMIUM is set, and there is no Chromium.")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)"
)

ROWS = 240
CONFIG: dict[str, Any] = {
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 16},
    "trainer": {"epochs": 3, "batch_size": 32, "learning_rate": 0.02},
    "backend": {"type": "local"},
}


def example(kind: str) -> tuple[dict[str, Any], pa.Table]:
    """Config and data whose target can be learned from its input."""
    random = np.random.default_rng(3)
    x = random.normal(size=ROWS)
    words = np.array(["dull", "okay", "great"])
    grade = random.integers(0, 3, ROWS)
    tags = [
        " ".join(each for each in ("red", "blue", "round") if random.random() < 0.5)
        for _ in range(ROWS)
    ]
    columns = {
        "regression": ("number", x, "number", 100 * x + random.normal(size=ROWS)),
        "binary": ("number", x, "binary", np.where(x > 0, "yes", "no")),
        "multiclass": ("number", x, "category", np.digitize(x, [-0.5, 0.5]).astype(str)),
        "set": ("set", tags, "binary", np.array(["red" in each for each in tags])),
        "text": ("text", words[grade], "category", np.array(["1", "5", "10"])[grade]),
    }
    kind_in, given, kind_out, target = columns[kind]
    features = {
        "input_features": [{"name": "given", "type": kind_in}, {"name": "noise", "type": "number"}]
    }
    if kind_in == "text":
        features["input_features"][0]["encoder"] = {"type": "embed"}  # type: ignore[assignment]
    features["output_features"] = [{"name": "target", "type": kind_out}]
    return {**features, **CONFIG}, pa.table(
        {"given": given, "noise": random.normal(size=ROWS), "target": target}
    )


def browse(*words: str) -> str:
    assert BROWSER is not None
    fixed = [
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--headless",
        "--allow-file-access-from-files",
    ]
    return subprocess.run(
        [BROWSER, *fixed, *words], capture_output=True, text=True, timeout=240, check=True
    ).stdout


def pixels(path: Path) -> np.ndarray:
    """A screenshot, uint8 [height, width, channels]."""
    data, at, parts = path.read_bytes(), 8, b""
    width, height, _, colour = struct.unpack(">IIBB", data[16:26])
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        parts += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    channels = {2: 3, 6: 4}[colour]
    raw = np.frombuffer(zlib.decompress(parts), np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height, width * channels), np.uint8)
    for row in range(height):
        out[row] = _unfiltered(raw[row], out[row - 1] if row else np.zeros_like(out[0]), channels)
    return out.reshape(height, width, channels)


def _unfiltered(line: np.ndarray, above: np.ndarray, size: int) -> np.ndarray:
    kind, row = int(line[0]), line[1:].astype(int)
    if kind == 0:
        return row.astype(np.uint8)
    if kind == 2:
        return ((row + above) & 255).astype(np.uint8)
    found = np.zeros_like(row)
    for at in range(len(row)):
        left = found[at - size] if at >= size else 0
        up, corner = int(above[at]), int(above[at - size]) if at >= size else 0
        guess = {1: left, 3: (left + up) // 2, 4: _paeth(left, up, corner)}[kind]
        found[at] = (row[at] + guess) & 255
    return found.astype(np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda each: abs(guess - each))


SECTIONS = {
    "regression": ("Predicted against actual", "Residuals"),
    "binary": ("ROC", "Precision and recall", "threshold", "Confusion matrix", "Classes"),
    "multiclass": ("Confusion matrix", "Classes", "Calibration"),
    "set": ("ROC", "Confusion matrix"),
    "text": ("Confusion matrix", "Classes"),
}
EVERYWHERE = (
    "without inputs",
    "better than",
    "Learning curves",
    "What the inputs are worth",
    "Worst test rows",
)
EVERYWHERE += ("drift, test", "Time and memory", "best evaluation")


@pytest.mark.system
@pytest.mark.parametrize("kind", SECTIONS)
def test_a_report_in_a_browser(tmp_path: Path, kind: str) -> None:
    config, table = example(kind)
    outcome = distcore.experiment(config, dataset=table, output_directory=tmp_path)
    page = f"file://{outcome.report}"
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", browse("--dump-dom", page), flags=re.S)
    for each in (*EVERYWHERE, *SECTIONS[kind]):
        assert each in text, each
    measure = tmp_path / "measure.html"
    for width in (360, 1200):
        measure.write_text(
            f'<body><iframe src="{page}" '
            f'style="width:{width}px;height:800px;border:0"></iframe><script>'
            "const frame = document.querySelector('iframe'); frame.onload = () => { "
            "document.body.dataset.wide = frame.contentDocument.documentElement.scrollWidth; "
            "};</script></body>"
        )
        shown = browse("--virtual-time-budget=4000", "--dump-dom", f"file://{measure}")
        found = re.search(r'data-wide="(\d+)"', shown)
        assert found is not None
        assert int(found.group(1)) <= width, "the page is wider than its window"
    brightness = {}
    for name, more in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        picture = tmp_path / f"{name}.png"
        browse(f"--screenshot={picture}", "--window-size=300,200", *more, page)
        image = pixels(picture)[..., :3]
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20, "nothing is drawn"
        brightness[name] = float(np.median(image))
    assert brightness["light"] > 200
    assert brightness["dark"] < 60


def test_classes_are_in_natural_order_and_no_chart_comes_twice(tmp_path: Path) -> None:
    config, table = example("text")
    outcome = distcore.experiment(config, dataset=table, output_directory=tmp_path)
    text = Path(str(outcome.report)).read_text()
    matrix = text[text.index("Confusion matrix") :]
    assert re.findall(r"<th>([^<]+)</th>", matrix)[:3] == ["1", "5", "10"]
    assert "combined: loss" not in text
    assert "target: loss" in text

"""The report: one self-contained file, whatever is there or missing, and nothing of the data
runs in it."""

import json
import random
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import distcore
from distcore_core.errors import UserError
from distcore_core.registry.manager import Plugins
from distcore_data import charts
from distcore_data.seals import read_sealed, sealed
from distcore_report import search, summary_sections
from distcore_report.page import render, write_report
from distcore_report.roles import REPORT_SECTION
from distcore_report.sections import SECTIONS
from distcore_report.summary_sections import columns, resources, worst
from distcore_search.vouched import DIGESTS, write_vouched
from distcore_testing.installed import lay_metadata


class Checker(HTMLParser):
    """Collects tags and everything a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href")]


def folder(path: Path, name: str = "y") -> Path:
    (path / "description.json").write_bytes(
        sealed(
            {
                "command": "experiment",
                "backend": {"name": "local", "reason": "why"},
                "random_seed": 1,
                "data": {"rows": {"train": 10}},
                "plugins": [
                    {
                        "kind": "trainers",
                        "name": "local",
                        "distribution": "distcore-local",
                        "version": "1",
                    }
                ],
                "environment": {"python": "3.11"},
                "config": {"input_features": [{"name": name}]},
            }
        )
    )
    curves = {
        "training": {name: {"loss": [1.0, 0.5, None]}},
        "validation": {name: {"loss": [1.1, 0.7]}},
    }
    write_vouched(path / "training_statistics.json", curves)
    write_vouched(path / "test_statistics.json", {name: {"loss": 0.6, "roc_auc": None}})
    diagnostics = {
        "labels": ["a", "b"],
        "confusion": [[3, 1], [0, 4]],
        "calibration": {"expected": [0.1, 0.9], "observed": [0.0, 1.0], "counts": [4, 4]},
        "residuals": {"edges": [-1, 0, 1], "counts": [2, 3]},
    }
    write_vouched(path / "test_diagnostics.json", {name: diagnostics})
    return path


def test_it_is_self_contained(tmp_path: Path) -> None:
    checker = Checker()
    checker.feed(render(folder(tmp_path)))
    assert not checker.loads
    assert "script" not in checker.tags
    assert checker.tags.count("svg") == 3


def test_classes_of_a_matrix_that_is_written_by_cells(tmp_path: Path) -> None:
    """Of more than 1,000 classes only the cells that were met are in the file."""
    whole = render(folder(tmp_path))
    cells = {"truth": [0, 0, 1], "predicted": [0, 1, 1], "rows": [3, 1, 4]}
    write_vouched(
        tmp_path / "test_diagnostics.json",
        {"y": {"labels": ["a", "b"], "confusion_cells": cells}},
    )
    text = render(tmp_path)
    assert "2 classes: the confusion matrix is in test_diagnostics.json" in text
    begin = "<figcaption>Classes</figcaption>"
    end = "</table>"
    assert text.partition(begin)[2].partition(end)[0] == whole.partition(begin)[2].partition(end)[0]
    assert "0.889" in text.partition(begin)[2]


def test_a_threshold_is_told_as_exactly_as_it_was_counted(tmp_path: Path) -> None:
    """Bins are 0.005 wide: that from 0.715 on was called 0.71."""
    counts = {"negatives": [1] * 143 + [0] * 57, "positives": [0] * 143 + [1] * 57}
    drawn = {"labels": ["no", "yes"], "confusion": [[143, 0], [0, 57]], "thresholds": counts}
    write_vouched(folder(tmp_path) / "test_diagnostics.json", {"y": drawn})
    told = re.findall(r"<tr><td class=number>(0\.\d+)( \(best F1\))?</td>", render(tmp_path))
    assert ("0.715", " (best F1)") in told
    assert [float(each) for each, _ in told] == [*(at / 10 for at in range(1, 8)), 0.715, 0.8, 0.9]


def test_of_pairs_that_are_not_all_rows_it_is_said(tmp_path: Path) -> None:
    for rows, told in ((3, "actual"), (4, "actual, 3 of the rows")):
        drawn = {
            "residuals": {"edges": [-1, 0, 1], "counts": [1, rows - 1]},
            "pairs": [[1.0, 1.5], [2.0, 1.5], [3.0, 2.5]],
        }
        write_vouched(folder(tmp_path) / "test_diagnostics.json", {"y": drawn})
        assert f"<figcaption>Predicted against {told}</figcaption>" in render(tmp_path)


def test_each_metric_has_its_curve_whatever_another_one_s_is(tmp_path: Path) -> None:
    """Recall was left out where it was 0 in every round, as precision was; of two outputs, one's
    accuracy where both had 1."""
    zeros, loss = [0.0, 0.0], [0.5, 0.4]
    one = {"precision": zeros, "recall": zeros, "loss": loss}

    def drawn(outputs: dict[str, Any]) -> list[str]:
        given = {"training": outputs, "validation": outputs}
        write_vouched(folder(tmp_path) / "training_statistics.json", given)
        return re.findall(r"<figcaption>(\S+: \S+)</figcaption>", render(tmp_path))

    curves = ["y: precision", "y: recall", "y: loss"]
    assert drawn({"y": one, "combined": {"loss": loss}}) == curves
    assert drawn({"combined": {"loss": loss}, "y": one}) == curves
    weighted = {"y": one, "combined": {"loss": [1.0, 0.8]}}
    assert drawn(weighted) == [*curves, "combined: loss"]
    two = {"y": one, "z": one, "combined": {"loss": loss}}
    assert drawn(two) == [*curves, "z: precision", "z: recall", "z: loss", "combined: loss"]
    assert drawn({"combined": {"loss": loss}}) == ["combined: loss"]


@pytest.mark.parametrize("by_cells", [False, True])
@pytest.mark.parametrize("classes", [30, 45])
def test_of_many_classes_those_with_the_most_rows_are_told(
    tmp_path: Path, classes: int, by_cells: bool
) -> None:
    """They were the first thirty by name."""
    rows = [at + 1 for at in range(classes)]  # the last has the most
    drawn: dict[str, Any] = {"labels": [str(at) for at in range(classes)]}
    if by_cells:
        whole = list(range(classes))
        drawn["confusion_cells"] = {"truth": whole, "predicted": whole, "rows": rows}
    else:
        drawn["confusion"] = [
            [rows[at] * (at == to) for to in range(classes)] for at in range(classes)
        ]
    write_vouched(folder(tmp_path) / "test_diagnostics.json", {"y": drawn})
    text = render(tmp_path)
    title = "Classes" if classes == 30 else "Classes: the 30 of 45 with the most rows"
    table = text.partition(f"<figcaption>{title}</figcaption>")[2].partition("</table>")[0]
    told = re.findall(r"<tr><td class=number>(\d+)</td>.*?>(\d+)</td></tr>", table)
    assert told == [(str(at), str(rows[at])) for at in range(classes - 30, classes)]


def test_names_from_the_data_cannot_become_markup(tmp_path: Path) -> None:
    text = render(folder(tmp_path, "<script>alert(1)</script>"))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


MARKUP = "<img src=x onerror=alert(1)>"


def with_markup(value: Any) -> Iterator[Any]:
    """The value with markup in place of one of the keys or values in it, or of itself."""
    yield MARKUP
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {MARKUP if each == name else each: value[each] for each in value}
            yield from ({**value, name: each} for each in with_markup(inner))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            before, behind = value[:index], value[index + 1 :]
            yield from ([*before, each, *behind] for each in with_markup(inner))


def test_no_value_of_a_stranger_s_file_can_become_markup(tmp_path: Path) -> None:
    """Whatever stands where numbers do, with digests that are right."""
    folder(tmp_path)
    headline = {"metric": "loss", "target": "y", "value": 0.5, "rows": {"train": 10}}
    headline |= {"baseline": 0.6, "lower_is_better": True}
    summary = {"headline": headline, "scores": {"y": {"loss": {"training": 0.5}}}}
    summary |= {"backend": "local", "stages": [], "best": {"evaluation": 1}, "evaluations": 1}
    summary |= {"scored_rows": {"training": 5}}
    (tmp_path / "summary.json").write_bytes(sealed(summary))
    plugins, drawn = Plugins(), 0
    for name in plugins.names(REPORT_SECTION.kind):
        section = plugins.make(REPORT_SECTION, name)
        if not (tmp_path / section.file).exists():
            continue
        for document in with_markup(json.loads((tmp_path / section.file).read_bytes())):
            try:
                text = "".join(section.draw(document))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
                continue
            drawn += bool(text)
            assert "<img" not in text.lower(), name
    assert drawn > 100


def test_what_was_skipped_is_left_out(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "test_statistics.json").unlink()
    (tmp_path / "test_diagnostics.json").unlink()
    assert "Learning curves" in render(tmp_path)
    assert "Test split" not in render(tmp_path)


FILES = (
    "description.json",
    "training_statistics.json",
    "test_statistics.json",
    "test_diagnostics.json",
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[" * 100_000, b'{"digest": 1}', b"[1]", b'{"y": {"loss": NaN}}'],
)
def test_a_damaged_file_is_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    (folder(tmp_path) / name).write_bytes(content)
    text = render(tmp_path)
    assert f"{name} is damaged" in caplog.text
    assert f"{name} is damaged" in text


@pytest.mark.parametrize("name", [*FILES, DIGESTS])
def test_no_flipped_bit_changes_a_report_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = folder(tmp_path) / name
    whole, content = render(tmp_path), path.read_bytes()
    source = random.Random(name)
    for _ in range(40):
        changed = bytearray(content)
        changed[source.randrange(len(content))] ^= 1 << source.randrange(8)
        path.write_bytes(changed)
        caplog.clear()
        assert render(tmp_path) == whole or name in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_shape_is_told_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Its digest is right, so somebody made it so."""
    path = folder(tmp_path) / name
    document = {"y": 3, "training": {"y": {"loss": "low"}}}
    if name == "description.json":
        path.write_bytes(sealed(document))
    else:
        write_vouched(path, document)
    render(tmp_path)
    assert f"cannot draw {tmp_path / name}" in caplog.text


def test_a_trainer_that_tells_little_of_its_best_round_has_a_summary_all_the_same(
    tmp_path: Path,
) -> None:
    """The page was made without it, and the file called one of another version."""
    best = {"epoch": 1, "step": 1, "evaluation": 1}
    summary = {"best": best, "evaluations": 1, "stages": [], "scores": {}, "backend": "local"}
    (folder(tmp_path) / "summary.json").write_bytes(sealed(summary))
    assert "<small>best evaluation</small><b>1</b><small>of 1</small>" in render(tmp_path)
    (tmp_path / "summary.json").write_bytes(sealed(summary | {"counted": "round"}))
    assert "<small>best round</small><b>1</b><small>of 1</small>" in render(tmp_path)


def test_nearly_faultless_is_not_shown_as_faultless() -> None:
    """On the page it was still 1 where the run's line said 0.99996."""
    head = {"metric": "accuracy", "target": "y", "value": 0.99996, "baseline": 0.49996}
    summary = {
        "headline": head | {"better": True, "rows": {"test": 9}},
        "best": {"evaluation": 1, "metric": "accuracy", "value": 0.99997},
        "evaluations": 1,
        "stages": [],
        "scores": {"y": {"accuracy": {"validation": 0.99997, "test": 0.99996}}},
    }
    drawn = "".join([*summary_sections.headline(summary), *summary_sections.scores(summary)])
    assert "by accuracy 0.99997<" in drawn
    assert "<b>0.99996</b>" in drawn
    assert "<td class=number>0.99996</td>" in drawn
    assert "<b>0.49996</b>" in drawn


def test_a_long_training_is_told_in_hours() -> None:
    summary = {
        "stages": [{"name": "train", "rows": 10, "seconds": 11_224.0}],
        "peak_memory_bytes": 1 << 30,
    }
    assert "3 h 7 min" in "".join(resources(summary))


def test_memory_and_row_numbers_are_told_as_elsewhere() -> None:
    drawn = "".join(resources({"stages": [], "peak_memory_bytes": 1_500_000_000}))
    assert "at most 1.5 GB of memory" in drawn
    assert "resumed" not in drawn
    row = {"row": 3, "truth": "a", "predicted": "b", "error": 0.9}
    for given, told in ((False, "those of the dataset"), (True, "count on from set to set")):
        assert f"Row numbers {'are ' * (not given)}{told}" in "".join(
            worst({"worst": {"y": [row]}, "given_sets": given})
        )


def test_the_table_of_a_search_tells_why_a_trial_failed() -> None:
    """It stood in a title, which no touch screen and no print shows."""
    trial = {"trial": "0000", "rounds": None, "seconds": 1.25, "parameters": {"batch_size": 8}}
    failed = {**trial, "state": "failed", "metric_score": None, "error": "<Out of memory>"}
    page = "".join(
        search.sections(
            {
                "objective": dict.fromkeys(("goal", "metric", "feature", "split"), "loss"),
                "hyperopt_results": [failed],
                "hyperopt_config": {},
            }
        )
    )
    assert "<td>failed: &lt;Out of memory&gt;</td><td class=number>–</td>" in page
    assert "; 1 trial</p>" in page


@pytest.mark.parametrize(("split", "drawn"), [("test", "validation"), ("training", "training")])
@pytest.mark.parametrize("count", [8, 9])
def test_the_rounds_of_a_search_say_of_which_split_and_trials_they_are(
    split: str, drawn: str, count: int
) -> None:
    """Those of the validation split were called the test split's; the ninth trial had the first
    one's colour."""
    curves = {drawn: {"y": {"loss": [0.5, 0.4]}}}
    trials = [
        {"trial": f"{at:04}", "state": "finished", "metric_score": 0.3 + at, "rounds": 2}
        | {"seconds": 1.0, "parameters": {}, "training_stats": curves}
        for at in range(count)
    ]
    objective = {"goal": "minimize", "metric": "loss", "feature": "y", "split": split}
    found = {"objective": objective, "hyperopt_results": trials, "hyperopt_config": {}}
    progress, rounds = re.findall(r"<figure>.*?</figure>", "".join(search.sections(found)))
    assert f"<figcaption>loss of y ({split} split)</figcaption>" in progress
    more = ", the best 8 of 9 trials" if count == 9 else ""
    assert f"<figcaption>loss of y ({drawn} split){more}</figcaption>" in rounds
    colours = re.findall(r'<polyline points="[^"]*" style="stroke:([^"]*)"', rounds)
    assert len(colours) == len(set(colours)) == 8


def test_a_search_that_was_changed_by_hand_is_told(tmp_path: Path) -> None:
    (tmp_path / "hyperopt_statistics.json").write_text('{"hyperopt_results": []}')
    with pytest.raises(UserError, match=r"hyperopt_statistics\.json is damaged"):
        render(tmp_path)


def test_an_input_that_is_worth_nearly_all_is_asked_about(tmp_path: Path) -> None:
    """Most often it follows from what is predicted, as a fee does that is booked afterwards."""

    def told(fee: float) -> str:
        rng = np.random.default_rng(5)
        target, noise = rng.random(600) < 0.5, rng.normal(size=(3, 600))
        inputs = {"a": noise[0] + 0.5 * target, "b": noise[1] + 0.5 * target}
        columns = {**inputs, "fee <EUR>": noise[2] + fee * target, "y": target}
        features = [{"name": name, "type": "number"} for name in ("a", "b", "fee <EUR>")]
        config = {
            "input_features": features,
            "output_features": [{"name": "y", "type": "binary"}],
            "preprocessing": {"split": {"type": "random", "probabilities": [0.4, 0.2, 0.4]}},
            "backend": {"type": "local", "cache_dir": str(tmp_path / "cache")},
            "trainer": {"epochs": 20, "batch_size": 32, "learning_rate": 0.01},
        }
        table = pa.table(columns)
        outcome = distcore.experiment(config, table, output_directory=tmp_path / str(fee))
        return (outcome.directory / "report.html").read_text()

    said = "of it. Look whether it is known when predictions are made"
    assert said not in told(0.5)
    assert re.search(rf"<p>fee &lt;EUR&gt; has \d+% {said}", told(30.0))


def test_of_thousands_of_columns_those_that_drift_are_shown(tmp_path: Path) -> None:
    """A page of 10,000 was 5 MB, and the one that drifts somewhere among them."""

    def column(name: str, role: str, missing: float | None, drift: float) -> dict[str, Any]:
        apart = {"validation": 0.0, "test": drift}
        return {"name": name, "role": role, "type": "number", "missing": missing, "drift": apart}

    names = [f"x{each}" for each in range(3000)]
    found = [column(name, "input", None, 0.01) for name in names]
    found[1234]["drift"]["test"], found[2345]["missing"] = 0.9, 0.5
    page = "".join(columns({"columns": [*found, column("y", "output", None, 0.0)]}))
    assert "Of 3,001 columns, the 200 that drift or miss most" in page
    assert re.findall(r"<tr><td>(\w+)", page)[:4] == ["y", "x1234", "x2345", "x0"]
    assert page.count("<tr>") == 201
    path = folder(tmp_path) / "description.json"
    config = {"input_features": [{"name": name} for name in names], "trainer": {}}
    path.write_bytes(sealed({**read_sealed(path, ""), "config": config}))
    page = render(tmp_path)
    assert "x199&" in page
    assert "x200&" not in page
    assert "trainer&quot;: {}" in page
    assert "and 2,800 more, which description.json has" in page


def test_a_folder_without_an_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no experiment"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 17), (1e-9, 2e-9), (5, 5), (0, 0), (1e6, 3e6)]
)
def test_ticks_cover_the_range_with_round_steps(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low + 1e-12
    assert found[-1] >= high - 1e-12
    assert 2 <= len(found) <= 12


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.99982, 0.99996, ["0.9998", "0.99985", "0.9999", "0.99995", "1"]),
        (2001, 2003, ["2001", "2001.5", "2002", "2002.5", "2003"]),
        (1e6, 1e6 + 4, ["1000000", "1000001", "1000002", "1000003", "1000004"]),
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (1e-5, 5e-5, ["1e-05", "2e-05", "3e-05", "4e-05", "5e-05"]),
    ],
)
def test_ticks_are_told_apart(low: float, high: float, labels: list[str]) -> None:
    drawn = charts.Frame((low, high), (0, 1), "x").svg([], "")
    assert re.findall(r'y="222" text-anchor="middle">([^<]*)<', drawn) == labels


def test_bars_are_told_apart_on_hover() -> None:
    drawn = charts.bars([2001, 2001.1, 2001.2], [3, 4], "x", "t")
    assert re.findall(r"<title>(.*?)</title>", drawn) == [
        "2001 to 2001.1: 3 rows",
        "2001.1 to 2001.2: 4 rows",
    ]


@pytest.mark.parametrize("low", [1_700_000_000, 0.3, 0])
@pytest.mark.parametrize("title", ["", "rows"])
def test_labels_have_room(low: float, title: str) -> None:
    """Long ones were cut at the page's edge, ran over the title of the axis, or over one another:
    a digit has six pixels."""
    high = low + (4e-8 if low == 0.3 else 4)
    drawn = charts.Frame((low, high), (low, high), "x", title).svg([], "")
    found = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]*)<', drawn)
    assert len(found) == 5
    assert all(float(x) - 6 * len(label) >= (12 if title else 0) for x, label in found)
    below = re.findall(r'<text x="([\d.]+)" y="222" text-anchor="middle">([^<]*)<', drawn)
    for (left, one), (right, other) in pairwise(below):
        assert float(right) - float(left) >= 3 * (len(one) + len(other))
    usual = charts.Frame((0, 1), (0, 1), "x", title).svg([], "")
    assert usual.count('x1="56" x2="408"') == 6


def test_a_line_chart_of_nothing_is_nothing() -> None:
    assert charts.lines({"a": [(0, float("nan"))]}, "x", "t") == ""


def test_a_series_has_the_same_colour_in_every_chart_and_a_flat_one_lies_in_the_middle() -> None:
    alone = charts.lines(
        {"training": [], "validation": [(1.0, 1.0), (2.0, 1.0)]}, "evaluation", "accuracy"
    )
    assert charts.COLOURS[1] in alone
    assert charts.COLOURS[0] not in alone
    assert ">validation</span>" in alone
    assert ">training</span>" not in alone
    assert charts.ticks(1, 1)[0] < 1 < charts.ticks(1, 1)[-1]


# ------------------------------------------------------------------ sections from outside

FAIRNESS = """
    from html import escape
    from distcore_core.hooks import hookimpl

    DISTCORE_API = (1, 0)

    class Fairness:
        file, order = "fairness.json", 25
        def draw(self, content):
            yield f"<h2>Fairness</h2><p>{escape(content['worst'])}</p>"

    @hookimpl
    def distcore_make_member(kind, name):
        return Fairness() if (kind, name) == ("report_sections", "fairness") else None
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a distribution with a section that this process sees until the test ends."""

    def install(name: str, source: str) -> None:
        module, site = name.replace("-", "_"), tmp_path / "site"
        lay_metadata(site, name, {"report_sections": {"fairness": module}})
        (site / f"{module}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_a_section_from_outside_stands_where_its_order_says(
    tmp_path: Path, plugin: Callable[[str, str], None]
) -> None:
    plugin("fair-one", FAIRNESS)
    (folder(tmp_path) / "fairness.json").write_bytes(sealed({"worst": "<none>"}))
    page = render(tmp_path)
    assert "<h2>Fairness</h2><p>&lt;none&gt;</p>" in page
    headings = [
        page.index(f"<h2>{each}")
        for each in ("Test split", "Fairness", "Learning curves", "Plugins")
    ]
    assert headings == sorted(headings)


def test_without_its_file_a_section_from_outside_is_left_out(
    tmp_path: Path, plugin: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    before = render(folder(tmp_path))
    plugin("fair-two", FAIRNESS)
    assert render(tmp_path) == before
    assert not caplog.text


def test_a_blocked_section_is_not_drawn(tmp_path: Path, plugin: Callable[[str, str], None]) -> None:
    plugin("fair-three", FAIRNESS)
    (folder(tmp_path) / "fairness.json").write_bytes(sealed({"worst": "none"}))
    assert "Fairness" in render(tmp_path)
    assert "Fairness" not in render(tmp_path, Plugins(["fairness"]))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "fair-broken",
            "from html import escape",
            "raise RuntimeError('half installed')",
            "half installed",
        ),
        ("fair-raising", 'yield f"', 'raise OSError("no font"); yield f"', "no font"),
        ("fair-shape", 'yield f"', 'raise KeyError("worse"); yield f"', "fairness.json (KeyError"),
        ("fair-short", "file, order =", "file, place =", "has no order"),
    ],
)
def test_a_section_that_fails_is_told_and_the_others_are_drawn(
    tmp_path: Path,
    plugin: Callable[[str, str], None],
    caplog: pytest.LogCaptureFixture,
    name: str,
    old: str,
    new: str,
    said: str,
) -> None:
    plugin(name, FAIRNESS.replace(old, new))
    (folder(tmp_path) / "fairness.json").write_bytes(sealed({"worst": "none"}))
    page = render(tmp_path)
    assert said in caplog.text
    assert "The report is made without its section &#x27;fairness&#x27;" in page
    assert "Learning curves" in page


def test_the_built_in_sections_are_registered_as_any_other() -> None:
    assert [each for each in Plugins().names("report_sections") if each in SECTIONS] == sorted(
        SECTIONS
    )
    assert all(Plugins().make(REPORT_SECTION, name) is SECTIONS[name] for name in SECTIONS)


def test_a_long_curve_has_four_points_in_a_column_of_pixels():
    """20,000 rounds were 12 MB of dots. No extreme is lost, and a short curve has all its dots."""
    random.seed(0)
    values = [random.random() for _ in range(20_000)]
    values[7_001], values[13_003] = 3.25, -2.5

    def dots(some):
        return re.findall("<title>c: (.*?) at (.*?)</title>", charts.lines({"c": some}, "x", "t"))

    points = charts.by_round(values)
    found = dots(points)
    assert charts.MOST_POINTS / 2 < len(found) <= charts.MOST_POINTS + 4
    heights = [float(height) for height, _ in found]
    assert max(heights) == 3.25
    assert min(heights) == -2.5
    places = [float(place) for _, place in found]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (1, 20_000)
    assert len(dots(points[: charts.MOST_POINTS])) == charts.MOST_POINTS

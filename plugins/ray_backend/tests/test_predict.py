"""predict and evaluate on a cluster: the bytes of one process, also if a node dies under the
work."""

import threading
import time

import pyarrow.csv
import pytest

import distcore
from distcore_testing import data

pytestmark = pytest.mark.cluster

ROWS = 600
REPEATS = 60


@pytest.fixture(scope="module")
def model(nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = data.config(str(folder / "cache"))
    return distcore.train(
        config, data.table(ROWS), output_directory=folder / "results", view="none"
    ).directory


@pytest.fixture(scope="module")
def large(nodes, tmp_path_factory):
    """Some 20 MB, of which a note that no feature reads takes most: half a dozen pieces."""
    path = tmp_path_factory.mktemp("large") / "data.csv"
    rows = tmp_path_factory.mktemp("rows") / "rows.csv"
    pyarrow.csv.write_csv(data.table(ROWS), rows)
    header, *lines = rows.read_text().splitlines()
    note = "," + "n" * 500 + "\n"
    with open(path, "w") as file:
        file.write(header + ",note\n")
        for _ in range(REPEATS):
            file.writelines(line + note for line in lines)
    return path


def written(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def expected(model, large, tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    distcore.evaluate(model, large, output_directory=folder, backend="local", view="none")
    return written(folder)


@pytest.mark.slow
def test_an_evaluation_has_the_bytes_of_one_in_one_process(model, large, expected, tmp_path):
    distcore.evaluate(model, large, output_directory=tmp_path, backend="ray", view="none")
    assert written(tmp_path) == expected


@pytest.mark.slow
def test_a_node_that_dies_under_a_prediction_costs_nothing_but_time(
    nodes, model, large, expected, tmp_path
):
    """Killed once the first piece is there and others are under way."""
    seen, over = {}, threading.Event()

    def kill():
        while not over.is_set():  # workers that import torch on a busy machine take their time
            if list((tmp_path / "predictions.parts").glob("*.piece")):
                seen["unfinished"] = not (tmp_path / "predictions.parquet").exists()
                nodes.cluster.remove_node(nodes.nodes.pop(), allow_graceful=False)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        distcore.evaluate(model, large, output_directory=tmp_path, backend="ray", view="none")
    finally:
        over.set()
    thread.join(120)
    assert seen == {"unfinished": True}
    assert written(tmp_path) == expected

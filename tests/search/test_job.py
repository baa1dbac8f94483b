"""What an executor is asked to run."""

import pytest

from distcore.config.yaml_document import parse
from distcore.search.job import points_of
from distcore.search.section import read_section

CONFIG = """\
input_features:
  - {name: x0, type: number}
output_features:
  - {name: y, type: binary}
hyperopt:
  parameters: {combiner.num_fc_layers: {space: grid_search, values: [1, 2]}}
  search_alg: {points_to_evaluate: [{combiner.num_fc_layers: 2}, {combiner.num_fc_layers: 1}]}
"""


@pytest.mark.parametrize(("samples", "told"), [(1, True), (2, False)])
def test_points_for_which_there_are_no_samples_are_told(samples, told, caplog):
    """Each takes the place of a sample, and beside a grid there is one by default."""
    points = points_of(read_section(parse(CONFIG, "c.yaml")), samples)
    assert points == ({"combiner.num_fc_layers": 1}, {"combiner.num_fc_layers": 0})
    assert ("has 2 points, and num_samples is 1" in caplog.text) == told

"""The executor's options: Ludwig's own section is read as it is, what Tune would pause is refused."""

import pytest

from distcore.config.document import parse
from distcore.errors import ConfigError
from distcore.plugins import Plugins
from distcore.search.section import check_candidates, read_section


def test_hyperband_which_pauses_trials_is_refused():
    with pytest.raises(ConfigError, match=r"hyperband pauses.*async_hyperband"):
        Plugins().make("executors", "ray", {"scheduler": {"type": "hyperband"}})


# Ludwig's own automl defaults, put together as its automl does: base_automl_config.yaml and combiner/concat_config.yaml.
LUDWIGS = """
input_features:
  - {name: x0, type: number}
  - {name: colour, type: category}
output_features:
  - {name: y, type: binary}
combiner:
  type: concat
trainer:
  batch_size: auto #256
  learning_rate: auto #.001
hyperopt:
  parameters:
    combiner.num_fc_layers:
      space: randint
      lower: 1
      upper: 4
    combiner.output_size:
      space: choice
      categories: [128, 256]
    combiner.dropout:
      space: uniform
      lower: 0.0
      upper: 0.1
    trainer.learning_rate:
      space: loguniform
      lower: 0.00002
      upper: 0.001
    trainer.batch_size:
      space: choice
      categories: [64, 128, 256, 512, 1024]
  search_alg:
    type: variant_generator
  executor:
    type: ray
    num_samples: 10
    time_budget_s: 7200
    scheduler:
      type: async_hyperband
      time_attr: time_total_s
      max_t: 7200
      grace_period: 72
      reduction_factor: 5
"""


def test_ludwigs_own_section_is_read_as_it_is():
    section = read_section(parse(LUDWIGS))
    plugins = Plugins()
    assert check_candidates(section, plugins, "local")
    options = plugins.validate("executors", "ray", section.options.executor.model_extra)
    assert options.num_samples == 10
    assert options.scheduler.reduction_factor == 5

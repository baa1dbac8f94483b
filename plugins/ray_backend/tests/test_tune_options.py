"""What the executor reads without a cluster: its options, Ludwig's own section, the nodes that a
cluster may yet have."""

from threading import Event

import pytest

from distcore.config.yaml_document import parse
from distcore.search.section import check_candidates, read_section
from distcore_core.contracts import EXECUTOR
from distcore_core.errors import ConfigError
from distcore_core.registry.manager import Plugins
from distcore_ray.tune import _callback
from distcore_torch.training.interrupt import Interrupt


def test_hyperband_which_pauses_trials_is_refused():
    with pytest.raises(ConfigError, match=r"hyperband pauses.*async_hyperband"):
        Plugins().make(EXECUTOR, "ray", {"scheduler": {"type": "hyperband"}})


def test_what_tune_saves_of_its_callbacks_is_nothing_of_a_session_s():
    """A session holds what no pickle takes: every search by `ray` ended in a TypeError."""
    from ray import cloudpickle

    plugins = Plugins()

    def told(*each):
        plugins.names("executors")

    saved = cloudpickle.dumps(_callback(told, Interrupt(), Event()))
    assert b"distcore" not in saved


# Ludwig's own automl defaults, put together as its automl does: base_automl_config.yaml and
# combiner/concat_config.yaml.
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
    assert check_candidates(section, plugins, "local", {"trainer": "local"})
    options = plugins.validate("executors", "ray", section.options.executor.model_extra)
    assert options.num_samples == 10
    assert options.scheduler.reduction_factor == 5


def test_a_cluster_that_grows_counts_with_the_nodes_that_may_come(monkeypatch):
    """As Ray tells it of autoscalers; of a cluster without one it tells nothing."""
    from ray._private.state import state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

    from distcore_ray import tune

    groups = [
        NodeGroupConfig(name="head", resources={"CPU": 0}, max_count=0),
        NodeGroupConfig(name="cpu", resources={"CPU": 8}, max_count=2),
        NodeGroupConfig(name="gpu", resources={"CPU": 4, "GPU": 1}, max_count=-1),
    ]
    monkeypatch.setattr(
        state, "get_cluster_config", lambda: ClusterConfig(node_group_configs=groups)
    )
    assert tune._may_come() == [{"CPU": 8}] * 2 + [{"CPU": 4, "GPU": 1}] * tune.MOST_NODES
    monkeypatch.setattr(state, "get_cluster_config", lambda: None)
    assert tune._may_come() == []

"""Every suite passes a sound plugin and catches the broken ones of tests/broken."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

KINDS = {
    "Backend": "backends",
    "Processor": "processors",
    "Loader": "loaders",
    "CacheFormat": "caches",
    "Feature": "features",
    "Model": "models",
    "Trainer": "trainers",
    "ClusterProcessor": "",
    "Executor": "executors",
    "Extension": "extensions",
    "Plugin": "",
}

CAUGHT = [
    (
        "Backend",
        "backward",
        "test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order",
    ),
    (
        "Backend",
        "timid",
        "test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order",
    ),
    ("Backend", "silent", "test_without_retries_a_killed_rank_is_an_error_that_names_it"),
    ("Backend", "unordered", "test_tasks_keep_their_order_and_none_is_fine"),
    (
        "Processor",
        "disordered",
        "test_every_partition_is_read_once_and_every_row_comes_in_its_shard",
    ),
    (
        "Processor",
        "rereading",
        "test_every_partition_is_read_once_and_every_row_comes_in_its_shard",
    ),
    ("Processor", "ownbytes", "test_every_partition_is_read_once_and_every_row_comes_in_its_shard"),
    ("Loader", "short", "test_every_row_once_an_epoch_in_batches_of_the_size_asked"),
    ("Loader", "forgetful", "test_any_start_goes_on_where_it_says_also_under_other_ranks"),
    ("Loader", "stubborn", "test_epochs_and_seeds_differ"),
    ("Loader", "greedy", "test_the_same_global_batches_for_any_number_of_ranks"),
    ("CacheFormat", "stamped", "test_equal_tables_give_equal_bytes"),
    ("CacheFormat", "lossy", "test_reading_gives_back_every_bit"),
    ("CacheFormat", "lenient", "test_a_shard_that_was_cut_is_not_read_as_a_shorter_one"),
    ("CacheFormat", "whole", "test_chosen_columns_in_the_order_asked"),
    ("CacheFormat", "keeping", "test_any_ranges_in_any_order_of_one_open_shard"),
    ("CacheFormat", "clamping", "test_rows_out_of_range_are_refused"),
    ("CacheFormat", "holding", "test_close_closes_the_source"),
    ("CacheFormat", "vague", "test_a_full_disk_keeps_its_errno"),
    ("Feature", "summing", "test_statistics_do_not_depend_on_the_partition_or_the_order"),
    ("Feature", "sliced", "test_encoding_is_row_wise_and_as_declared"),
    ("Feature", "holed", "test_rows_without_any_value_are_encoded"),
    ("Feature", "wide", "test_encoding_is_row_wise_and_as_declared"),
    ("Feature", "object", "test_metadata_is_json"),
    ("Model", "unseeded", "test_the_seed_decides_the_weights"),
    ("Model", "unused", "test_logits_for_every_output_and_gradients_for_every_weight"),
    ("Model", "crowded", "test_a_row_is_predicted_alike_whatever_else_is_in_its_batch"),
    ("Model", "narrow", "test_logits_for_every_output_and_gradients_for_every_weight"),
    ("Trainer", "pickling", "test_nothing_saved_is_a_pickle"),
    ("Trainer", "restless", "test_the_same_seed_gives_the_same_model"),
    ("Trainer", "amnesic", "test_evaluating_the_saved_model_gives_the_same_scores"),
    ("Trainer", "muddled", "test_a_loaded_model_predicts_every_row_in_order"),
    ("ClusterProcessor", "inside", "test_no_task_runs_in_the_driver"),
    (
        "Executor",
        "repeating",
        "test_trials_that_ended_are_not_repeated_and_one_that_was_begun_goes_on",
    ),
    ("Executor", "fragile", "test_a_trial_that_fails_or_dies_does_not_stop_the_others"),
    ("Executor", "mixing", "test_every_trial_runs_once_with_its_own_parameters"),
    ("Extension", "misspelt", "test_it_listens_to_events_that_exist"),
    ("Extension", "needy", "test_rank_zero_of_a_worker_group_may_hear_only_part"),
    ("Extension", "presumptuous", "test_a_run_that_is_refused_ends_with_its_own_error"),
    ("Extension", "meddling", "test_a_run_with_it_makes_the_same_model_and_it_never_fails"),
    ("Plugin", "loose", "test_an_unknown_option_is_refused_by_its_name"),
    ("Plugin", "heavy", "test_loading_and_detecting_imports_nothing_heavy"),
    ("Plugin", "stale", "test_it_is_found_and_states_an_api_that_fits"),
]
"""(suite, broken plugin, the test that must fail)."""

ALIASES = {
    "loose": "extensions",
    "heavy": "extensions",
    "stale": "extensions",
    "inside": "processors",
}
"""Where a broken plugin of a suite without a sound one stands. A sound processor over processes
is a plugin's own."""


def written(suite: str, plugin: str) -> str:
    """A subclass of the suite for a plugin, as its author would write it."""
    lines = [f"class Test{suite}{plugin.title()}(testing.{suite}Suite):", f"    name = {plugin!r}"]
    if suite == "Plugin":
        lines.append(f"    kind = {ALIASES[plugin]!r}")
    if suite == "Trainer":
        lines += ["    trainer = {'epochs': 1, 'batch_size': 64}"]
    if suite == "Feature":
        lines += [
            "    def values(self):",
            "        return pa.array([None if row % 9 == 0 else row**0.5 for row in range(300)])",
        ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """{(suite, plugin, test): whether it passed} of one pytest run in a process that sees the
    broken distribution."""
    folder = tmp_path_factory.mktemp("broken")
    for source in (Path(__file__).parent / "broken").glob("*.py"):
        shutil.copy(source, folder)
    (folder / "plugin_stale.py").write_text("DISTCORE_API = (2, 0)\n")
    plugins = {(suite, plugin) for suite, plugin, _ in CAUGHT} | {
        (suite, "sound") for suite in KINDS if KINDS[suite]
    }
    info = folder / "broken_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugins\nVersion: 1.0\n")
    entries = []
    for suite, plugin in sorted(plugins):
        module = "plugin_stale" if plugin == "stale" else "plugins_broken"
        entries.append(f"[distcore.{KINDS[suite] or ALIASES[plugin]}]\n{plugin} = {module}\n")
    grouped: dict[str, list[str]] = {}
    for entry in entries:
        group, line = entry.splitlines()
        grouped.setdefault(group, []).append(line)
    text = "\n".join("\n".join([group, *lines]) for group, lines in grouped.items())
    (info / "entry_points.txt").write_text(text + "\n")
    suites = "\n\n".join(written(suite, plugin) for suite, plugin in sorted(plugins))
    (folder / "test_broken.py").write_text(
        f"import pyarrow as pa\nimport distcore_testing as testing\n\n{suites}\n"
    )
    wanted = {
        f"test_broken.py::Test{suite}{plugin.title()}::{test}" for suite, plugin, test in CAUGHT
    }
    wanted |= {
        f"test_broken.py::Test{suite}Sound::{test}" for suite, _, test in CAUGHT if KINDS[suite]
    }
    words = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-c",
        "pytest.ini",
        "--junit-xml=found.xml",
    ]
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *sorted(wanted)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout[-20000:], done.stderr[-2000:])
    found: dict[tuple[str, str], bool] = {}
    for case in ElementTree.parse(folder / "found.xml").iter("testcase"):
        key = (case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0])
        found[key] = found.get(key, True) and len(case) == 0
    return found


@pytest.mark.parametrize(("suite", "plugin", "test"), CAUGHT)
def test_the_suite_catches(outcomes, suite, plugin, test):
    """The broken plugin fails that very test, and the sound one passes it."""
    assert outcomes[f"Test{suite}{plugin.title()}", test] is False
    if KINDS[suite]:
        assert outcomes[f"Test{suite}Sound", test] is True


def test_every_suite_has_a_broken_plugin_that_it_catches():
    import distcore_testing as testing

    assert {f"{suite}Suite" for suite, _, _ in CAUGHT} == set(testing.__all__)


def test_pytest_is_imported_only_when_a_suite_is_named():
    code = (
        "import sys, distcore_testing, distcore_testing.data; assert 'pytest' not in sys.modules; "
    )
    code += "distcore_testing.PluginSuite; assert 'pytest' in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_failing_suite_shows_the_values(outcomes, tmp_path):
    """The suites' asserts are rewritten, as those of test files are."""
    (tmp_path / "test_it.py").write_text(
        "from distcore_testing import BackendSuite\n"
        "\n"
        "class TestIt(BackendSuite):\n"
        "    name = 'local'\n"
        "    ranks = 2\n"
        "    def test_its_defaults_are_installed(self):\n"
        "        pass\n"
        "    def test_it_says_its_name_and_real_resources(self, backend):\n"
        "        self.name = 'other'\n"
        "        super().test_it_says_its_name_and_real_resources(backend)\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "resources",
        "test_it.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert "assert 'local' == 'other'" in done.stdout, done.stdout + done.stderr

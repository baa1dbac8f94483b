"""Names of the files that runs and searches leave, for those who write them and for those who read
them: the app, the search toolkit and the report know of no other place."""

DESCRIPTION = "description.json"
"""What a run was begun with, and so can be gone on with if no config is given."""

RECEIPT = "receipt.json"
"""Everything that a run's bits may depend on."""

TRAINING_LOG = "training_log.jsonl"
"""A line an evaluation round."""

TRAINING_STATISTICS = "training_statistics.json"
TEST_STATISTICS = "test_statistics.json"
TEST_DIAGNOSTICS = "test_diagnostics.json"

MODEL_JSON = "model.json"
"""In a model's folder: its manifest."""

SUMMARY = "summary.json"
"""What a run came to, for the report and for notebooks."""

REPORT = "report.html"
"""What the extension `report` writes."""

ENDED = "ended.json"
"""How a run ended that did not end well: {"state": "stopped" or "failed", "error"}, and the
innermost "frames" of an error that nobody expected: such a run may take days to fail again."""

SEARCH = "search.json"
"""What a search was begun with; a folder that holds it can be gone on with."""

TRIAL = "trial.json"
"""A trial's parameters, state and score."""

SEARCH_STATISTICS = "hyperopt_statistics.json"
"""A search's trials, best first."""

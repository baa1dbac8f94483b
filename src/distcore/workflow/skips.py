"""What need not be saved, by its flags, whose names `skip` of the Python interface takes, too."""

from __future__ import annotations

SKIP_TRAINING_DESCRIPTION = "skip_save_training_description"
SKIP_TRAINING_STATISTICS = "skip_save_training_statistics"
SKIP_MODEL = "skip_save_model"
SKIP_PROGRESS = "skip_save_progress"
SKIP_LOG = "skip_save_log"
SKIP_PROCESSED_INPUT = "skip_save_processed_input"
SKIP_PREDICTIONS = "skip_save_predictions"
SKIP_EVAL_STATS = "skip_save_eval_stats"
SKIP_REPORT = "skip_save_report"
SKIP_HYPEROPT_STATISTICS = "skip_save_hyperopt_statistics"

SKIPS = {
    SKIP_TRAINING_DESCRIPTION: "description.json and receipt.json; to resume the run takes "
    "--config, and diff and verify refuse it",
    SKIP_TRAINING_STATISTICS: "training_statistics.json, ledger.jsonl and "
    "training_log.jsonl: runs and compare show no rounds, diff and verify refuse the run",
    SKIP_MODEL: "the model",
    SKIP_PROGRESS: "checkpoints; a run that is stopped cannot be resumed",
    SKIP_LOG: "what extensions log",
    SKIP_PROCESSED_INPUT: "the cache; it is removed when the run ends",
    SKIP_PREDICTIONS: "predictions.parquet",
    SKIP_EVAL_STATS: "test_statistics.json and test_diagnostics.json",
    SKIP_REPORT: "report.html and summary.json",
    SKIP_HYPEROPT_STATISTICS: "hyperopt_statistics.json and the report",
}
"""{name: what it leaves out}."""

NEVER_SAVED = ("skip_save_unprocessed_output", "skip_save_k_fold_split_indices")
"""Ludwig's, which hold without being given."""

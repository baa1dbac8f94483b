"""What need not be saved, by its flags, whose names `skip` of the Python interface takes, too."""

from __future__ import annotations

SKIPS = {
    "skip_save_training_description": "description.json and receipt.json; to resume the run takes "
    "--config, and diff and verify refuse it",
    "skip_save_training_statistics": "training_statistics.json, ledger.jsonl and "
    "training_log.jsonl: runs and compare show no rounds, diff and verify refuse the run",
    "skip_save_model": "the model",
    "skip_save_progress": "checkpoints; a run that is stopped cannot be resumed",
    "skip_save_log": "what extensions log",
    "skip_save_processed_input": "the cache; it is removed when the run ends",
    "skip_save_predictions": "predictions.parquet",
    "skip_save_eval_stats": "test_statistics.json and test_diagnostics.json",
    "skip_save_report": "report.html and summary.json",
    "skip_save_hyperopt_statistics": "hyperopt_statistics.json and the report",
}
"""{name: what it leaves out}."""

NEVER_SAVED = ("skip_save_unprocessed_output", "skip_save_k_fold_split_indices")
"""Ludwig's, which hold without being given."""

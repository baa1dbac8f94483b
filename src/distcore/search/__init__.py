"""Hyperparameter search: the `hyperopt` section, its trials, and what they leave. `run.hyperopt`
tells the story."""

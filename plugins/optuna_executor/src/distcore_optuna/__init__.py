"""Hyperparameter search on one machine, with Optuna."""

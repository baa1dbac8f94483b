"""The quality suite: what configs that nobody tuned reach on real datasets, beside LightGBM and
scikit-learn."""

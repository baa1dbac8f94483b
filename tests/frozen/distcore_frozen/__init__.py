"""A plugin as it was on the day of API 1.0: a trainer, a cache format and a feature. Nothing here may change."""

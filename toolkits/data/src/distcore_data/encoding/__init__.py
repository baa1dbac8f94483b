"""From rows to encoded shards: statistics, splits, missing values, and the pure functions that
processors run."""

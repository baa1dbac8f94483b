"""A line for each evaluation of a distcore run."""

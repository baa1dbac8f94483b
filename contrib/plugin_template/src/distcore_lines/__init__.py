"""An extension of distcore that writes a line for each evaluation of a run."""

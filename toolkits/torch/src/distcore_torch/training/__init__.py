"""Fitting a torch module: the loop of one rank, how ranks act as one, checkpoints, scores."""

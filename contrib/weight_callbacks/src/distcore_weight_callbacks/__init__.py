"""Averaged weights (EMA) and sharpness-aware steps (SAM), as callbacks of the training loop."""

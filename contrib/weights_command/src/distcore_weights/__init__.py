"""The command `distcore weights`, which lists what a model holds."""

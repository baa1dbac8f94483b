"""The trainer `ridge`: linear models in closed form."""

"""Gradient-boosted trees as a distcore trainer."""

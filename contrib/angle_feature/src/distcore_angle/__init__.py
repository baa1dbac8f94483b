"""Angles as a feature type of distcore."""

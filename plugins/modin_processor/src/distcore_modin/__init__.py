"""Modin on Ray as distcore's processor."""

"""Dask as distcore's processor."""

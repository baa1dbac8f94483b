"""Parquet as distcore's cache format."""

"""Avro as a cache format of distcore."""

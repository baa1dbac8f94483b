"""TFRecord as distcore's cache format."""

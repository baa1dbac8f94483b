"""HDF5 as distcore's cache format."""

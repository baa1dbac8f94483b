"""Fixed-width text as a data format of distcore."""

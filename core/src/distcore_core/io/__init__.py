"""Files that are whole or not there: atomic writes, digests, temporaries."""

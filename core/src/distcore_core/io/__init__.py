"""Files that are whole or not there: atomic writes, digests, locks, seals, temporaries, errnos
in words."""

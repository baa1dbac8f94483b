"""A config as a document: its lines, what is wrong with them, the base of options models; no
option of anybody's."""

"""A config as a document: its lines, what is wrong with them, and the base of options models; no option of anybody's."""

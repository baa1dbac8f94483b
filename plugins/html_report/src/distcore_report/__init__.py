"""report.html of a run or a search: an extension that writes it, and a command that writes it
again."""

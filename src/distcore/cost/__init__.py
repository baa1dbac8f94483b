"""How long a run will take and how much memory: what this machine's constants are, and what follows
from them."""

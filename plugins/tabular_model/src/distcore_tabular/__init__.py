"""Features for tables and text, and the network that they declare."""

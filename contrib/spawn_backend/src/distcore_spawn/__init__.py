"""The backend `spawn`: Python's own processes."""

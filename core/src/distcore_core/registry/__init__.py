"""Which plugins are installed, how one is loaded and checked, and how events reach those that
listen."""

"""What executors of searches are made with: the space, records of trials, rounds."""

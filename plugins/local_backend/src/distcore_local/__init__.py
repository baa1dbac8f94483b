"""distcore on one machine: backend, processor, loader, and the trainers local and data_parallel."""

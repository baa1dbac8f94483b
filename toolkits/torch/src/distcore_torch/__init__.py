"""What torch trainers are made with: batches, the sampler, the training loop, strategies, checkpoints, scores."""

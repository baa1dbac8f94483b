"""What processors and cache formats are made with: sources, datasets, encoding, caches, stores."""

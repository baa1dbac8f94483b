"""distcore on Ray. `plugin` is what core loads; the other modules import Ray."""

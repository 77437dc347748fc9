"""Per-sample gradients, their projections and products, and the curvature of the loss."""

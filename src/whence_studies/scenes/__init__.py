"""Parts of an evaluation: data, networks, perturbations, training."""

"""What evaluations are made of: data, networks, perturbations, trainings."""

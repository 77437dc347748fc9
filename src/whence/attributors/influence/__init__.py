"""Influence functions: gradients, and the inverse of the curvature."""

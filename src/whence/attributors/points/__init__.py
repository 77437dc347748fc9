"""Representer Points: last layers that are weighted sums of the training features."""

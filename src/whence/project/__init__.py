"""A fitted explainer with its model, its data and its tests."""

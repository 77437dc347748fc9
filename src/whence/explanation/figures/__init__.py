"""Explanations drawn with matplotlib."""

"""Attacks on what whence promises, one module per promise, each a table that is easy to extend.

``make attack`` runs them long: ATTACK_ROUNDS times with other places and sizes, drawn with ATTACK_SEED.
Nothing is written outside of the folder that pytest gives a test.
"""

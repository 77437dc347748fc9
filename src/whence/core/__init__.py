"""Shared basics: checks, text, files, stores, caches, fingerprints, registries."""

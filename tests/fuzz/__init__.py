"""Seeded random calls of everything public, right and wrong: each returns sense or raises a typed error."""

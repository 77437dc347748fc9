"""The base class of attribution methods, what a fit learned, and functions of it."""

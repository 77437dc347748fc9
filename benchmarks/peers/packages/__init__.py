"""One file per package."""

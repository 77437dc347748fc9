"""Three classifiers to try ``whence fit`` on; ``docs/examples.md`` shows how."""

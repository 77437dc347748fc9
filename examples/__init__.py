"""Three classifiers to try ``whence fit`` on; ``docs/research/examples.md`` shows how."""

"""What every other package uses: checks, text, files, stores, caches, fingerprints, registries."""

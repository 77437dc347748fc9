"""What every other room stands on: checks, words, files, stores, fingerprints."""

"""What several tests need: models, oracles, stand-ins."""

"""How many samples go through a network at a time, unless one says otherwise."""

BATCH_SIZE = 64
"""What is fastest on a processor: the activations of more no longer fit its cache."""

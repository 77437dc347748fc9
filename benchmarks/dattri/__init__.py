"""dattri's MNIST benchmark: their networks, data and halves, retrained here, and whence's methods on them.

``protocol`` has the recipes, ``truth`` retrains networks on the halves, ``methods`` and ``scores`` compute
and judge attributions, ``render`` makes the tables. Run ``python -m benchmarks.dattri --help``.
"""

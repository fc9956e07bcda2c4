"""How fast the runtime is, beside plain torch and its peers: ``python -m tests.benchmarks``."""

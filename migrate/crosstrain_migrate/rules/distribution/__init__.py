"""CT3: distribution and precision by hand, taken out down to the plain script inside.

For precision, DataParallel and gradients averaged by hand, and for what runs on Accelerate. A script that trains with
DistributedDataParallel is mapped where it stands (`rules.mapping`), which asks this package for the parts that both need:
what the processes know (`alone`, `launched`), the wrapper (`replicas`), and what nothing uses any more (`remove_unused`, `remove_dead_code`).
"""

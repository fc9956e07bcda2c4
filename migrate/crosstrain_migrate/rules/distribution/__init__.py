"""CT3: scripts that distribute themselves or choose their precision themselves, reduced to the plain script inside.

This is done for mixed precision, for DataParallel, for gradients that the script averages itself, and for whatever runs on
Accelerate. A script that trains with DistributedDataParallel is mapped construct by construct instead (`rules.mapping`). It
uses the parts of this package that both ways need: what a process knows (`single_process`, `launcher_settings`), the wrapper
(`replicas`), and the removal of code that nothing uses any more (`unused_code`, `empty_code`).
"""

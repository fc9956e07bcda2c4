"""Faults injected into real trainings: nothing that was saved is lost, no batch is repeated or dropped.

`training` is what is trained, `rounds` injects one fault and judges what came of it.
"""

"""Scripts that distribute themselves, mapped where they stand.

Such a script already says what each process does, so its meaning on N processes is the reference. Only what the launcher
and the Accelerator take over changes: how the processes become one group, what tells the script that there are several,
the wrapper around the model, devices by number. Its samplers, tests of the rank, reductions and barriers stay: the run's
process group is the default group, so they go on meaning what they mean.

In: a `Stage` of the original (rules.distribution.plain). Out: edits on it, and `requested.mapped`, which tells `rules.plan`
to ask the rules about placement, `prepare`, backward and clipping only.
"""

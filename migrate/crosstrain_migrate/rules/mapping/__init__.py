"""Scripts that distribute themselves, mapped construct by construct where they stand.

Such a script already says what each process does, so its meaning on N processes is the reference. Only what the launcher and
the Accelerator take over changes: the process group, the switch that says that there are several processes, the wrapper
around the model, and devices by number. Samplers, tests of the rank, reductions and barriers stay: the run's process group
is the default group, so they keep their meaning.

In: a `Stage` of the original (rules.distribution.plain). Out: edits on it, and `requested.mapped`, which tells `rules.plan`
to ask the rules about placement, `prepare`, backward and clipping only.
"""

"""The conversion by use: a small core that is always possible, and optional edits where they are sure.

In: the text of a script, or of a program of several files (`syntax.program`). Out: its conversion (`conversion`).

`script` is what the others ask about the code; `roles` finds what trains, by use and not by origin, `data` what it trains
on; `dealing` finds the evaluations whose batches can be dealt to the processes, `accumulators` what they leave behind;
`choice` finds the flags that choose the CPU, `alike` the places to which every process comes, `refusals` what is known to be
wrong. Each of the others plans edits of one kind: `accelerator`, `prepare`, `backward`, `devices`, `output`, `merging`,
`numbers` and `shown`, `mapping`. `plan` holds what they have planned, `conversion` makes the edits, and drops those that
fail a check. `unseen` says why nothing is converted, `observed` what a run has shown, `accelerate` what cannot be said to
Hugging Face's library. Only the engine imports this room, and what it needs of the words in it.
"""

"""The conversion by use: a small core that is always possible, and optional edits where they are sure.

In: the text of a script, or of a program of several files (`syntax.program`). Out: its conversion. The engine calls
`conversion`, which asks the rooms: `reading` knows the script, `placing` the accelerator, devices and ranks, `training` what is
prepared; `numbers` deals evaluations and reduces what is shown, `output` leaves files to one process, `distributed` maps scripts
that distribute themselves. `plan` holds what they have planned, and `conversion` makes the edits and drops those that fail a
check. `refusals` says what is known to be wrong, or cannot be said to Hugging Face's library, and `unseen` why nothing is converted.
"""

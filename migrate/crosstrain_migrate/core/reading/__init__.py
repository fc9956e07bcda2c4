"""What the others ask about a script.

In: the text. Out: answers. `code` knows what stands around what, and `script` who calls whom; `roles` finds what trains, by use
and not by origin, and `training_data` what it trains on (`iterators`, `ranges`, `phases`); `draws`, `alike` and `differing` know what
processes share. Everything else in `core` asks them.
"""

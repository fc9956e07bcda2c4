"""Which runs are made, what they are compared by, the verdict on each, and why something differs (`causes`).

In: two scripts. Out: the runs of a `Report`. Imports `running`, `records` and `report`. Imported by `engine`.
"""

"""Names that exist because Accelerate has them.

In: the names that scripts import, or use of an Accelerator. Out: this package's object of that name, or an error that names
the alternative.

- `lazy`: packages whose names are imported on first use. `not_supported`: names that this package does not implement.
- `process_members`, `option_members`, `further_members`: properties and less common methods of an Accelerator.

Scripts reach them through the modules at the package's root and in `utils`, which have the names of Accelerate's.
"""

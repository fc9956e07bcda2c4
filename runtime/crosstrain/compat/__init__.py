"""Names that exist because Accelerate has them.

In: the names that scripts import or ask an Accelerator for. Out: ours under the same name, or an error that names the
alternative.

- `lazy`: packages whose names are imported on first use. `not_supported`: names that are not ours.
- `process_members`, `loader_option_members`, `further_members`: properties and seldom used methods of an Accelerator.

The modules at the package's root and in `utils` that are named as Accelerate's are the doors to them.
"""

"""Names that exist because Accelerate has them.

In: the names that scripts import or ask an Accelerator for. Out: ours under the same name, or an error that names the
alternative.

- `lazy`: packages whose names are imported on first use. `not_supported`: names that are not ours.
- `further_members`: triggers, and the loaders' options as properties of an Accelerator.

The modules at the package's root and in `utils` that are named as Accelerate's are the doors to them.
"""

"""rdkit, for packages that import it and are given graphs that are made already."""

"""Pictures."""

from . import benchmarks as benchmarks
from . import datasets as datasets
from . import models as models

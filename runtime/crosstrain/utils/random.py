"""Names that users import from ``accelerate.utils.random``."""

from crosstrain.seeding import set_seed, synchronize_rng_state, synchronize_rng_states

__all__ = ["set_seed", "synchronize_rng_state", "synchronize_rng_states"]

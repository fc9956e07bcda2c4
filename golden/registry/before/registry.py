"""Objects by name."""


def build(place, options, *args):
    """What `place` has under the configured name, made with the options that are left."""
    options = dict(options)
    kind = getattr(place, options.pop("name"))
    return kind(*args, **options)

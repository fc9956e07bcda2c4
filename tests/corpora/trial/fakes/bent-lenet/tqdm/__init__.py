"""A bar that shows nothing (the notebook's own needs ipywidgets)."""


def tqdm(iterable, *args, **options):
    return iterable


def trange(n, *args, **options):
    return range(n)

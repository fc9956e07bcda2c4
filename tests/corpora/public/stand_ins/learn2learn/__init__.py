"""learn2learn, whose sampling of tasks is compiled where it is installed: small tasks of points instead of pictures."""

from . import algorithms as algorithms
from . import data as data
from . import nn as nn
from . import utils as utils
from . import vision as vision

from .data import make_loader
from .loop import get_device, run_epoch
from .net import Classifier

__all__ = ["Classifier", "get_device", "make_loader", "run_epoch"]

"""What we know of PyTorch's names: constructors by role, losses and their reductions, what moves a tensor."""

from __future__ import annotations

import ast
import re
from functools import cache

OPTIMIZER_PREFIX = "torch.optim."
SCHEDULER_PREFIX = "torch.optim.lr_scheduler."
NO_OPTIMIZERS = frozenset({"AveragedModel", "SWALR"})  # of torch.optim.swa_utils
AVERAGED = "torch.optim.AveragedModel"  # as `canonical` spells it
SCHEDULER_BASES = frozenset({"torch.optim.lr_scheduler.LRScheduler", "torch.optim.lr_scheduler._LRScheduler"})
MODULE_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.Sequential"})
OTHER_OPTIMIZERS = (  # of libraries that keep to torch.optim.Optimizer
    *("transformers.AdamW", "transformers.Adafactor", "transformers.optimization.A", "apex.optimizers.Fused"),
    *("torch_optimizer.", "bitsandbytes.optim.", "lion_pytorch.Lion", "pytorch_transformers.AdamW"),
)
OTHER_SCHEDULERS = ("transformers.get_", "transformers.optimization.get_")
OPTIMIZER_BASES = frozenset({"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"})
SUBMODULE = "torch.nn.Module"  # what a ModuleList or ModuleDict holds
LAST_DIM_BY_DEFAULT = frozenset({"topk", "sort", "argsort", "kthvalue", "msort"})
# NumPy's constructors whose number argument is a size; anything else reads the number.
ARRAY_MAKERS = frozenset(f"numpy.{name}" for name in ("zeros", "ones", "empty", "full", "arange", "eye"))
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack", "append"})
PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
# Classes of libraries that inherit from torch's DataLoader and leave its data set, sampler and collation to it.
OTHER_LOADERS = frozenset(
    {"dgl.dataloading.GraphDataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"}
    | {"monai.data.DataLoader", "monai.data.ThreadDataLoader", "timm.data.loader.MultiEpochsDataLoader"}
)
GRAPH_LOADERS = ("torch_geometric.loader.", "torch_geometric.data.")  # some of them are named samplers
GRAPH_SAMPLERS = frozenset({"NeighborSampler", "ShaDowKHopSampler"})
LOADERS_OF_GRAPHS = frozenset({"DataLoader", "DenseDataLoader"})  # of whole graphs, one for each sample
ASSUMED_LOADER = "torch.utils.data.AssumedLoader"  # what a training loop goes over, whoever made it
OBSERVED_LOADER = "torch.utils.data.ObservedLoader"  # what a run has shown to be one, whoever made it
DEVICE_STRING = re.compile(r"^(cuda|cpu|mps|xpu|gpu)(:\d+)?$")
DEVICE_START = re.compile(r"^(cuda|xpu):([{%].*)?$")  # of a text that a number is put into
ITERATORS = frozenset(
    {
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.std.tqdm",
        "builtins.iter",
        "builtins.list",
        "builtins.reversed",
        "itertools.cycle",
        "itertools.islice",
        "rich.progress.track",
    }
)

# Functional losses -> their reduction when none is named. All of them take rows and collapse them.
LOSSES = frozenset(
    {
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "gaussian_nll_loss",
        "hinge_embedding_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "nll_loss",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "cosine_embedding_loss",
    }
)
# A class weight or an ignored index divides by something else than the number of rows.
NORMALISING_ARGUMENTS = frozenset({"weight", "ignore_index"})
# Losses whose `weight` scales the terms but whose mean still divides by the number of elements.
PLAIN_WEIGHT_LOSSES = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})

# Tensor methods (and torch / torch.nn.functional functions) that treat every element or every row on its own.
ROW_WISE = frozenset(
    [
        "abs",
        "absolute",
        "acos",
        "add",
        "addcdiv",
        "addcmul",
        "alpha_dropout",
        "asin",
        "atan",
        "atan2",
        "bernoulli",
        "bfloat16",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "bool",
        "byte",
        "ceil",
        "celu",
        "clamp",
        "clamp_",
        "clamp_max",
        "clamp_min",
        "clip",
        "clone",
        "contiguous",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "copysign",
        "cos",
        "cosh",
        "cpu",
        "cuda",
        "detach",
        "detach_",
        "div",
        "div_",
        "divide",
        "double",
        "dropout",
        "dropout2d",
        "elu",
        "embedding",
        "eq",
        "erf",
        "exp",
        "exp_",
        "expm1",
        "feature_dropout",
        "float",
        "floor",
        "floor_divide",
        "fmod",
        "gelu",
        "glu",
        "greater",
        "greater_equal",
        "gt",
        "ge",
        "half",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "hardtanh_",
        "int",
        "interpolate",
        "isfinite",
        "isinf",
        "isnan",
        "layer_norm",
        "leaky_relu",
        "leaky_relu_",
        "le",
        "less",
        "lerp",
        "less_equal",
        "lgamma",
        "linear",
        "log",
        "log10",
        "log1p",
        "log2",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "logit",
        "logsigmoid",
        "long",
        "lt",
        "masked_fill",
        "masked_fill_",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_max_pool2d",
        "mish",
        "mul",
        "mul_",
        "multiply",
        "nan_to_num",
        "ne",
        "neg",
        "negative",
        "not_equal",
        "numpy",
        "one_hot",
        "pad",
        "pixel_shuffle",
        "pow",
        "prelu",
        "reciprocal",
        "relu",
        "relu6",
        "relu_",
        "remainder",
        "requires_grad_",
        "round",
        "rsqrt",
        "rsub",
        "selu",
        "sgn",
        "short",
        "sigmoid",
        "sigmoid_",
        "sign",
        "silu",
        "sin",
        "sinh",
        "softplus",
        "softshrink",
        "softsign",
        "sqrt",
        "square",
        "sub",
        "sub_",
        "subtract",
        "tan",
        "tanh",
        "tanh_",
        "tanhshrink",
        "threshold",
        "to",
        "tolist",
        "true_divide",
        "trunc",
        "type",
        "type_as",
        "upsample",
        "unfold",
        "where",
        "xlogy",
        "zero_",
        "fill_",
        "zeros_like",
        "ones_like",
        "rand_like",
        "randn_like",
        "empty_like",
        "full_like",
        "batch_norm",
        "group_norm",
        "instance_norm",
        "local_response_norm",
        "grid_sample",
        "affine_grid",
        "normal_",
        "uniform_",
        "item",
        "bmm",
        "baddbmm",
        "pin_memory",
        "scaled_dot_product_attention",
        "argwhere_rows",
        "is_floating_point",
    ]
)
# Keep a mean a mean and a sum a sum (linear, or mere conversions).
LINEAR = frozenset(
    [
        "detach",
        "detach_",
        "data",
        "cpu",
        "cuda",
        "to",
        "float",
        "double",
        "half",
        "bfloat16",
        "clone",
        "contiguous",
        "neg",
        "negative",
        "item",
        "tolist",
        "numpy",
        "requires_grad_",
        "squeeze",
        "unsqueeze",
        "view",
        "reshape",
        "type",
        "type_as",
        "flatten",
    ]
)
# Read a tensor into Python or NumPy.
HOST_METHODS = frozenset({"item", "tolist", "numpy"})
HOST_BUILTINS = frozenset(
    {"builtins.float", "builtins.int", "builtins.bool", "builtins.str", "builtins.repr"}
)
# Collapse the rows unless told a dimension beyond the first; True: the result is a (values, indices) pair.
REDUCTIONS = {
    "sum": False,
    "mean": False,
    "prod": False,
    "std": False,
    "var": False,
    "norm": False,
    "argmax": False,
    "argmin": False,
    "amax": False,
    "amin": False,
    "any": False,
    "all": False,
    "logsumexp": False,
    "count_nonzero": False,
    "max": True,
    "min": True,
    "median": True,
    "mode": True,
    "nanmean": False,
    "nansum": False,
}
# Work along a dimension (last by default for some); keep the shape, or return pairs.
ALONG = {
    "softmax": False,
    "log_softmax": False,
    "softmin": False,
    "normalize": False,
    "cumsum": False,
    "cumprod": False,
    "argsort": False,
    "flip": False,
    "gumbel_softmax": False,
    "cosine_similarity": False,
    "topk": True,
    "sort": True,
    "kthvalue": True,
    "gather": False,
    "scatter": False,
    "scatter_": False,
    "scatter_add": False,
    "index_select": False,
    "select": False,
    "narrow": False,
    "chunk": True,
    "split": True,
    "unbind": True,
    "diff": False,
    "roll": False,
}
# Without a `dim` these work along the first dimension, or over everything.
FIRST_DIM_BY_DEFAULT = frozenset({"chunk", "split", "unbind", "flip", "roll"})
# The rows stay, whatever the arguments: the other tensor's shape decides.
SHAPE_AS = frozenset({"view_as", "reshape_as", "expand_as"})
FACTORIES = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "empty",
        "rand",
        "randn",
        "randint",
        "arange",
        "eye",
        "tensor",
        "as_tensor",
        "linspace",
        "Tensor",
        "FloatTensor",
        "DoubleTensor",
        "LongTensor",
    }
)
# Factories that are also given data: rows stay rows.
FROM_DATA = frozenset(
    {"tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "DoubleTensor", "LongTensor"}
)
# The last part of a path that the script looks up: `models.__dict__[args.arch]`, `getattr(optim, args.optimizer)`.
CHOSEN = "ChosenByName"
# What torchvision.models has besides models.
OF_NUMBERS = frozenset({"tensor", "as_tensor"})
ABOUT_MODELS = frozenset({"list_models", "get_model_builder", "get_model_weights", "get_weight"})
RECURRENT = frozenset({"torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU"})
# What only a tensor is asked for (a batch that is a dictionary has `.to` as well, but none of the others).
TENSOR_MEMBERS = frozenset(
    {"to", "cuda", "size", "shape", "view", "reshape", "flatten", "float", "dim", "t", "detach", "data"}
)

_REEXPORTS = {
    "torch.nn.functional.": "torch.nn.functional.",
    "torch.nn.modules.loss.": "torch.nn.",
}


def names_a_device(node: ast.expr) -> bool:
    """Whether a text is put together that names a device: `f"cuda:{gpu}"`, `"cuda:" + gpu`, `"cuda:{}".format(gpu)`."""
    if isinstance(node, ast.JoinedStr) and node.values:
        start: ast.expr = node.values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        start = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        start = node.func.value
    else:
        return False
    return isinstance(start, ast.Constant) and bool(DEVICE_START.match(str(start.value)))


@cache
def canonical(path: str) -> str:
    """One spelling for names that PyTorch exports from several places."""
    for prefix, replacement in _REEXPORTS.items():
        if path.startswith(prefix):
            return replacement + path[len(prefix) :]
    if path.startswith("torch.optim."):
        parts = path.split(".")
        if len(parts) == 4 and parts[2] != "lr_scheduler":  # torch.optim.adam.Adam
            return f"torch.optim.{parts[3]}"
    return path


def last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


def is_loss_class(path: str) -> bool:
    return path.startswith("torch.nn.") and path.count(".") == 2 and path.endswith("Loss")


def loss_function_of(path: str) -> str:
    """`torch.nn.BCEWithLogitsLoss` -> `binary_cross_entropy_with_logits`, where it matters for its `weight`."""
    return {
        "torch.nn.BCELoss": "binary_cross_entropy",
        "torch.nn.BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    }.get(path, "")


def is_model_of_a_zoo(path: str) -> bool:
    """Functions and classes of torchvision and timm that make a model."""
    if path == "timm.create_model":
        return True
    return path.startswith("torchvision.models.") and not (
        last(path).endswith("_Weights") or last(path) in ABOUT_MODELS
    )


@cache
def is_module_class(path: str) -> bool:
    if is_model_of_a_zoo(path):
        return True
    if is_loss_class(path) or path.startswith(
        ("torch.nn.functional", "torch.nn.utils", "torch.nn.init", "torch.nn.parallel")
    ):
        return False
    return path == AVERAGED or (
        path.startswith("torch.nn.")
        and last(path)[:1].isupper()
        and last(path) not in {"Parameter", "ParameterList", CHOSEN}
    )


@cache
def is_loader_class(path: str) -> bool:
    """Whether a path names torch's DataLoader or a class of a library that inherits from it."""
    if path in LOADERS or path in OTHER_LOADERS or path in {ASSUMED_LOADER, OBSERVED_LOADER}:
        return True
    return path.startswith(GRAPH_LOADERS) and (
        path.endswith("Loader") or last(path) in GRAPH_SAMPLERS or last(path).startswith("GraphSAINT")
    )


def has_a_role(path: str) -> bool:
    """Whether objects of a class are known to be loaders, optimizers, schedulers, losses or devices."""
    known = (is_loader_class, is_optimizer_class, is_scheduler_class, is_loss_class)
    return path == "torch.device" or any(is_one(path) for is_one in known)


def searches(path: str) -> bool:
    """Whether an optimizer searches along a line, by the loss that its closure returns."""
    return last(path) == "LBFGS"


@cache
def is_optimizer_class(path: str) -> bool:
    named = path.startswith(OPTIMIZER_PREFIX) and path.count(".") == 2 and last(path)[:1].isupper()
    return (named and last(path) not in NO_OPTIMIZERS) or path.startswith(OTHER_OPTIMIZERS)


def is_scheduler_class(path: str) -> bool:
    if path.startswith(OTHER_SCHEDULERS):
        return path.endswith(("_warmup", "_schedule", "_restarts", ".get_scheduler"))
    return path.startswith(SCHEDULER_PREFIX) and last(path)[:1].isupper()


def makes_array(path: str) -> bool:
    """Whether a NumPy function makes an array of the size it is given."""
    return path in ARRAY_MAKERS or path.startswith("numpy.random.")


# Functions that make a tensor of random numbers.
NOISE = frozenset(
    {
        "rand",
        "randn",
        "randint",
        "normal",
        "bernoulli",
        "multinomial",
        "rand_like",
        "randn_like",
        "randint_like",
    }
)

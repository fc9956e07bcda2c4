"""What is known of PyTorch's names: which classes play which role, which losses reduce how, what a function does to rows.

Names without dots are those of tensor methods, and of the functions of torch, torch.nn.functional and NumPy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache


def words(text: str) -> frozenset[str]:
    """A table that is written as words."""
    return frozenset(text.split())


# -- classes -------------------------------------------------------------------------------------------------

OPTIMIZER_PREFIX = "torch.optim."
SCHEDULER_PREFIX = "torch.optim.lr_scheduler."
NO_OPTIMIZERS = words("AveragedModel SWALR")  # of torch.optim.swa_utils
AVERAGED = "torch.optim.AveragedModel"  # as `canonical` spells it
SCHEDULER_BASES = words("torch.optim.lr_scheduler.LRScheduler torch.optim.lr_scheduler._LRScheduler")
MODULE_BASES = words("torch.nn.Module torch.nn.modules.module.Module torch.nn.Sequential")
OPTIMIZER_BASES = words("torch.optim.Optimizer torch.optim.optimizer.Optimizer")
OTHER_OPTIMIZERS = (  # of libraries that subclass torch.optim.Optimizer
    *("transformers.AdamW", "transformers.Adafactor", "transformers.optimization.A", "apex.optimizers.Fused"),
    *("torch_optimizer.", "bitsandbytes.optim.", "lion_pytorch.Lion", "pytorch_transformers.AdamW"),
)
OTHER_SCHEDULERS = ("transformers.get_", "transformers.optimization.get_")
SUBMODULE = "torch.nn.Module"  # what a ModuleList or ModuleDict holds
PARAMETERS = words("torch.nn.Parameter torch.nn.parameter.Parameter")
RECURRENT = words("torch.nn.RNN torch.nn.LSTM torch.nn.GRU")
LOADERS = words("torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader")
# Subclasses of DataLoader in libraries that change neither its data set nor its sampler nor its collate function.
OTHER_LOADERS = words("""
    dgl.dataloading.GraphDataLoader torchdata.stateful_dataloader.StatefulDataLoader
    monai.data.DataLoader monai.data.ThreadDataLoader timm.data.loader.MultiEpochsDataLoader
""")
GRAPH_LOADERS = ("torch_geometric.loader.", "torch_geometric.data.")  # some of them are named samplers
GRAPH_SAMPLERS = words("NeighborSampler ShaDowKHopSampler")
LOADERS_OF_GRAPHS = words("DataLoader DenseDataLoader")  # of whole graphs, one for each sample
ASSUMED_LOADER = "torch.utils.data.AssumedLoader"  # what a training loop iterates, whoever made it
OBSERVED_LOADER = "torch.utils.data.ObservedLoader"  # what an observed run has shown to be a loader
# The last part of a path that is looked up at run time: `models.__dict__[args.arch]`, `getattr(optim, args.optimizer)`.
CHOSEN = "ChosenByName"
# Packages of torch.nn that hold no layers.
NO_MODULES = ("torch.nn.functional", "torch.nn.utils", "torch.nn.init", "torch.nn.parallel")
# Functions of torchvision.models that make no model.
ABOUT_MODELS = words("list_models get_model_builder get_model_weights get_weight")
DEVICE_STRING = re.compile(r"^(cuda|cpu|mps|xpu|gpu)(:\d+)?$")
DEVICE_START = re.compile(r"^(cuda|xpu):([{%].*)?$")  # of a text that a number is put into
ITERATORS = words("""
    tqdm.tqdm tqdm.auto.tqdm tqdm.notebook.tqdm tqdm.std.tqdm rich.progress.track
    builtins.iter builtins.list builtins.reversed itertools.cycle itertools.islice
""")

# -- losses --------------------------------------------------------------------------------------------------

# Functional losses: they take rows and reduce them.
LOSSES = words("""
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy gaussian_nll_loss
    hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss
""")
# With a class weight or an ignored index, the mean divides by something else than the number of rows.
NORMALISING_ARGUMENTS = words("weight ignore_index")
# Losses whose `weight` scales the terms, but whose mean divides by the number of elements all the same.
PLAIN_WEIGHT_LOSSES = words("""
    binary_cross_entropy binary_cross_entropy_with_logits BCELoss BCEWithLogitsLoss
""")

# -- tensors -------------------------------------------------------------------------------------------------

# Treat every element or every row on its own.
ROW_WISE = words("""
    abs absolute acos add addcdiv addcmul asin atan atan2 ceil clamp clamp_ clamp_max clamp_min clip copysign cos cosh
    div div_ divide erf exp exp_ expm1 floor floor_divide fmod lerp lgamma log log10 log1p log2 logit mul mul_ multiply
    nan_to_num neg negative pow reciprocal remainder round rsqrt rsub sgn sign sin sinh sqrt square sub sub_ subtract
    tan tanh tanh_ true_divide trunc xlogy
    bitwise_and bitwise_not bitwise_or bitwise_xor eq ge greater greater_equal gt isfinite isinf isnan le less
    less_equal logical_and logical_not logical_or logical_xor lt masked_fill masked_fill_ ne not_equal where
    bfloat16 bool byte clone contiguous cpu cuda detach detach_ double float half int is_floating_point item long numpy
    pin_memory requires_grad_ short to tolist type type_as
    celu elu gelu glu hardsigmoid hardswish hardtanh hardtanh_ leaky_relu leaky_relu_ logsigmoid mish prelu relu relu6
    relu_ selu sigmoid sigmoid_ silu softplus softshrink softsign tanhshrink threshold
    alpha_dropout bernoulli dropout dropout2d feature_dropout normal_ uniform_
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d avg_pool1d avg_pool2d max_pool1d max_pool2d max_pool3d
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d affine_grid baddbmm bmm embedding grid_sample interpolate
    linear one_hot pad pixel_shuffle scaled_dot_product_attention unfold upsample
    batch_norm group_norm instance_norm layer_norm local_response_norm
    empty_like fill_ full_like ones_like rand_like randn_like zero_ zeros_like
""")
# Keep a mean a mean and a sum a sum: linear functions and conversions.
LINEAR = words("""
    bfloat16 clone contiguous cpu cuda data detach detach_ double flatten float half item neg negative numpy
    requires_grad_ reshape squeeze to tolist type type_as unsqueeze view
""")
# Read a tensor into Python or NumPy.
HOST_METHODS = words("item tolist numpy")
HOST_BUILTINS = words("builtins.float builtins.int builtins.bool builtins.str builtins.repr")
# Collapse the rows unless they are given a dimension beyond the first.
REDUCTIONS = words("""
    all amax amin any argmax argmin count_nonzero logsumexp max mean median min mode nanmean nansum norm prod std sum
    var
""")
# Work along a dimension and keep the others.
ALONG = words("""
    argsort chunk cosine_similarity cumprod cumsum diff flip gather gumbel_softmax index_select kthvalue log_softmax
    narrow normalize roll scatter scatter_ scatter_add select softmax softmin sort split topk unbind
""")
# Of these two tables: those that return several tensors.
RETURNS_SEVERAL = words("chunk kthvalue max median min mode sort split topk unbind")
# Those whose `dim` is the second argument beside the tensor.
DIM_COMES_SECOND = words("chunk kthvalue norm normalize roll split topk")
# Without a `dim` these work along the first or the last dimension, or over everything.
NEED_A_DIM = words("argsort chunk flip kthvalue roll sort split topk unbind")
# The rows stay, whatever the arguments: the other tensor's shape decides.
SHAPE_AS = words("expand_as reshape_as view_as")
JOINS = words("append cat concat concatenate hstack stack vstack")
# Factories that take data, too: of rows they make rows.
FROM_DATA = words("as_tensor DoubleTensor FloatTensor from_numpy LongTensor Tensor tensor")
OF_NUMBERS = words("as_tensor tensor")  # of a number they make a tensor that holds it
FACTORIES = words("""
    arange as_tensor DoubleTensor empty eye FloatTensor full linspace LongTensor ones rand randint randn Tensor tensor
    zeros
""")
# Functions that make a tensor of random numbers.
NOISE = words("bernoulli multinomial normal rand rand_like randint randint_like randn randn_like")
# NumPy's functions that take a number as a size; the others read it.
ARRAY_MAKERS = words("numpy.arange numpy.empty numpy.eye numpy.full numpy.ones numpy.zeros")
# What only a tensor is asked for (a batch that is a dictionary may have `to`, but none of the others).
TENSOR_MEMBERS = words("cuda data detach dim flatten float reshape shape size t to view")


def last(path: str) -> str:
    """The name at the end of a dotted path."""
    return path.rsplit(".", 1)[-1]


@cache
def canonical(path: str) -> str:
    """The one spelling that stands here for a name that PyTorch exports from several places."""
    if path.startswith("torch.nn.modules.loss."):
        return f"torch.nn.{last(path)}"
    parts = path.split(".")
    if parts[:2] == ["torch", "optim"] and len(parts) == 4 and parts[2] != "lr_scheduler":
        return f"torch.optim.{parts[3]}"  # of torch.optim.adam.Adam
    return path


def names_a_device(node: ast.expr) -> bool:
    """Whether an expression builds the name of a device: `f"cuda:{gpu}"`, `"cuda:" + gpu`, `"cuda:{}".format(gpu)`."""
    if isinstance(node, ast.JoinedStr) and node.values:
        start: ast.expr = node.values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        start = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        start = node.func.value
    else:
        return False
    return isinstance(start, ast.Constant) and bool(DEVICE_START.match(str(start.value)))


def is_loss_class(path: str) -> bool:
    return path.startswith("torch.nn.") and path.count(".") == 2 and path.endswith("Loss")


def is_model_of_a_zoo(path: str) -> bool:
    """Whether a function or class of torchvision or timm makes a model."""
    name = last(path)
    in_torchvision = path.startswith("torchvision.models.") and name not in ABOUT_MODELS
    return path == "timm.create_model" or (in_torchvision and not name.endswith("_Weights"))


@cache
def is_module_class(path: str) -> bool:
    if path == AVERAGED or is_model_of_a_zoo(path):
        return True
    if not path.startswith("torch.nn.") or path.startswith(NO_MODULES) or is_loss_class(path):
        return False
    return last(path)[:1].isupper() and last(path) not in {"Parameter", "ParameterList", CHOSEN}


@cache
def is_loader_class(path: str) -> bool:
    """Whether a path names torch's DataLoader or a class of a library that inherits from it."""
    if path in LOADERS or path in OTHER_LOADERS or path in {ASSUMED_LOADER, OBSERVED_LOADER}:
        return True
    return path.startswith(GRAPH_LOADERS) and (
        path.endswith("Loader") or last(path) in GRAPH_SAMPLERS or last(path).startswith("GraphSAINT")
    )


@cache
def is_optimizer_class(path: str) -> bool:
    named = path.startswith(OPTIMIZER_PREFIX) and path.count(".") == 2 and last(path)[:1].isupper()
    return (named and last(path) not in NO_OPTIMIZERS) or path.startswith(OTHER_OPTIMIZERS)


def is_scheduler_class(path: str) -> bool:
    if path.startswith(OTHER_SCHEDULERS):
        return path.endswith(("_warmup", "_schedule", "_restarts", ".get_scheduler"))
    return path.startswith(SCHEDULER_PREFIX) and last(path)[:1].isupper()


IS_OF_ROLE: dict[str, Callable[[str], bool]] = {
    "module": is_module_class,
    "loader": is_loader_class,
    "loss": is_loss_class,
    "optimizer": is_optimizer_class,
    "scheduler": is_scheduler_class,
}


@cache
def role_of(path: str) -> str:
    """What the objects of a class are in training; empty for any other class."""
    return next((role for role, is_one in IS_OF_ROLE.items() if is_one(path)), "")


def searches(path: str) -> bool:
    """Whether an optimizer runs a line search, which evaluates the loss that its closure returns."""
    return last(path) == "LBFGS"


def makes_array(path: str) -> bool:
    """Whether a NumPy function makes an array of the size that it is given."""
    return path in ARRAY_MAKERS or path.startswith("numpy.random.")

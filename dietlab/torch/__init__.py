"""dietlab in PyTorch: tuned libraries compute the layers of a model (the extra ``torch``)."""

from dietlab.torch.attention import replace_attention
from dietlab.torch.convolution import Conv1d, Conv2d
from dietlab.torch.experts import replace_experts
from dietlab.torch.layers import Linear
from dietlab.torch.optimize import optimize
from dietlab.torch.packing import find_libraries, pack
from dietlab.torch.replace import replace_layers, replace_linears
from dietlab.torch.residuals import register

__all__ = [
    "Conv1d",
    "Conv2d",
    "Linear",
    "find_libraries",
    "optimize",
    "pack",
    "replace_attention",
    "replace_experts",
    "replace_layers",
    "replace_linears",
]

register()

"""Options of the ``dietlab`` command, and how their text is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dietlab.base.cards import share_text
from dietlab.base.errors import DietlabError, HardwareError, MissingDependencyError, closest
from dietlab.cli.names import Named
from dietlab.cli.parameters import ADDRESS
from dietlab.cost import COST_MODEL, COST_MODELS
from dietlab.machine import Hardware
from dietlab.machine.system import usable_cores
from dietlab.machine.target import TARGETS
from dietlab.problem import ShapeSet
from dietlab.problem.dims import HasDims, as_extent, only_dim
from dietlab.problem.layer_shapes import layers_outside
from dietlab.problem.layers import MODELS
from dietlab.problem.networks import NETWORKS
from dietlab.problem.networks.walk import Network
from dietlab.problem.shapes import drawn_layers
from dietlab.problem.traffic import TABLES
from dietlab.tuning import EFFORTS, STRATEGIES

shown = partial(click.option, show_default=True)
"""An option whose help has its default."""

TRAFFIC = ("paper", "bert", "serving", "speech")
SEVERAL_HELP = (
    "log-uniform:N[:SEED], a grid such as T=1,16;N=768;K=768, or LAYERS@LENGTHS as --layers and --lengths "
    "have them"
)
SHAPES_HELP = (
    "uniform[:N] (N evenly spaced), every, random:N[:SEED]; by recorded traffic: paper, bert, serving, "
    "speech, each with [:N] for N shapes that stand for all; or extents such as 5,24,43. Of several "
    f"dimensions: {SEVERAL_HELP}"
)
DRAWN = 16
"""The number of shapes for each dynamic dimension, if there are several and no shapes are named."""

HELD_OUT = "held-out"
LAYERS_HELP = (
    f"{', '.join(MODELS)}, sizes N:K such as 2304:768,768:768, or {HELD_OUT}[/COUNT[/SEED]]: drawn from the "
    "whole range. Of conv1d and conv2d, a network that has the layer, or layers with channels in the ranges: "
    f"{', '.join(NETWORKS)}"
)
EXTENTS_OF_NETWORKS = (
    "sides or sizes of images, such as 224,800x1333; frames of 10 ms for whisper-*, samples for wav2vec2, or "
    "speech[:N] for N lengths that stand for all (default: those that the network is used with)"
)
LENGTHS_HELP = (
    f"{', '.join(TABLES)}, each with [:N] for N lengths that stand for all, or such as 1,16,128. For a "
    f"network, sizes of its inputs: {EXTENTS_OF_NETWORKS}"
)
DEFAULT_LENGTHS = "paper"
MERGED = 16
"""The largest number of lengths that stand for all utterances, if no lengths are named."""

EXAMPLE = "For example --layers bert-base --lengths serving:8."
ROUNDING = 1e-9
"""The largest share of the calls, 0 to 1, that is no more than rounding of the weights."""

cover_option = click.option(
    "--cover",
    type=click.Choice(["composed", "paper"]),
    default="composed",
    show_default=True,
    help="How a plan covers a shape: composed, rows exactly, by several micro-kernels; paper, as DietCode "
    "does, by one with local padding.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), help="Cores that the operator uses (default: 1)."
)
target_option = click.option(
    "--target",
    type=Named(TARGETS),
    default="cpu",
    show_default=True,
    help="Which processor of this machine; --hardware wins over it.",
)
hardware_option = click.option(
    "--hardware",
    metavar="NAME|FILE",
    help=f"A JSON file or a preset: {', '.join(Hardware.presets())} (default: this machine).",
)


def effort_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option that chooses an effort."""
    return click.option(
        "--effort",
        type=click.Choice(list(EFFORTS)),
        default=default,
        show_default=True,
        help="How much to measure: does everything run, a first library, one to use, one to publish.",
    )


strategy_option = click.option(
    "--strategy",
    type=Named(STRATEGIES),
    default="draft",
    show_default=True,
    help="What proposes the next schemes, or MODULE:NAME of your own.",
)
cost_model_option = click.option(
    "--cost-model",
    type=Named(COST_MODELS),
    default=COST_MODEL,
    show_default=True,
    help="What predicts times from measurements, or MODULE:NAME of your own. "
    + "; ".join(f"{name}: {COST_MODELS[name].summary}" for name in COST_MODELS.own)
    + ". `dietlab cost-models` compares them.",
)
transfer_option = click.option(
    "--transfer-from",
    "sources",
    multiple=True,
    metavar="STUDY",
    help="Start from the records of this study, or file: of other shapes, layers, operators or processors; "
    "may be given again. Records of another processor count once some pairs are measured on this one, at a "
    "level and a share that are fitted on them.",
)

max_kernels_option = click.option(
    "--max-kernels",
    type=click.IntRange(1),
    help="Most micro-kernels of the library (default: the study's; for a new study 8, or 12 for layers of "
    "several sizes).",
)


def shape_set_option(usual: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option ``--shapes``, whose default is ``usual`` or depends on the operator."""
    several = f"uniform:8; of several dimensions, log-uniform with {DRAWN} shapes for each"
    return click.option(
        "--shapes",
        default=usual,
        show_default=usual is not None or several,
        help=f"Which shapes: {SHAPES_HELP}.",
    )


def shapes_option(usual: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options of a shape set. The command gets one text, ``shapes``, for
    :func:`parse_shapes`; its default is ``usual``; None means a default that depends on the operator."""
    options = (
        shape_set_option(usual),
        click.option("--layers", help=f"In place of --shapes, every layer at every length. {LAYERS_HELP}."),
        click.option("--lengths", help=f"T of the --layers (default: {DEFAULT_LENGTHS}). {LENGTHS_HELP}."),
    )

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_shapes(shapes: str | None, layers: str | None, lengths: str | None, **others: Any) -> Any:
            return command(shapes=_shapes_text(shapes, layers, lengths), **others)

        for option in reversed(options):
            with_shapes = option(with_shapes)
        return with_shapes

    return added


def _shapes_text(shapes: str | None, layers: str | None, lengths: str | None) -> str | None:
    if layers is None and lengths is None:
        return shapes
    if layers is None:
        raise DietlabError("--lengths needs --layers", lengths, f"Name them: {LAYERS_HELP}.")
    source = click.get_current_context().get_parameter_source("shapes")
    if source is not ParameterSource.DEFAULT:
        rule = "shapes must come from either --shapes or --layers"
        raise DietlabError(rule, f"both, {shapes} and {layers}", "Leave one out.")
    usual = usual_sizes(NETWORKS[layers]) if layers in NETWORKS else DEFAULT_LENGTHS
    return f"{layers}@{lengths or usual}"


def usual_sizes(network: Network) -> str:
    """Returns a network's usual sizes, as ``--lengths`` takes them."""
    if isinstance(network.sizes, str):
        return f"{network.sizes}:{MERGED}"
    sides = (size if len(set(size)) > 1 else size[:1] for size in network.sizes)
    return ",".join("x".join(map(str, size)) for size in sides)


rpc_option = click.option(
    "--rpc",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Measure on the servers of the tracker there (dietlab serve), all that are free at the same time.",
)
key_option = click.option("--key", help="Which servers of --rpc: all of one processor.")
ahead_option = click.option(
    "--ahead/--no-ahead",
    default=None,
    help="Propose a round while the one before is measured: no device waits, but each round knows less "
    "(default: with several servers; a study goes on as it began).",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def parse_shapes(text: str | None, workload: HasDims, beyond: bool = False) -> ShapeSet:
    """Returns the shape set of ``--shapes``, with the text as its ``source``; for None, the usual shape set
    for the workload's number of dynamic dimensions. With ``beyond``, listed extents outside the range get a
    note in place of an error."""
    if text is None:
        several = len(workload.dims)
        text = f"log-uniform:{DRAWN * several}" if several > 1 else "uniform:8"
    try:
        return replace(_shapes(text, workload, beyond), source=text)
    except (TypeError, ValueError) as error:
        if isinstance(error, DietlabError):
            raise
        remedy = EXAMPLE if len(workload.dims) > 1 else "For example --shapes uniform:8 or --shapes 5,24,43."
        raise DietlabError(f"shapes are {SHAPES_HELP}", repr(text), remedy) from None


def _shapes(text: str, workload: HasDims, beyond: bool) -> ShapeSet:
    layers, at, lengths = text.partition("@")
    if at:
        return parse_layers(layers, lengths, workload)
    if "=" in text:
        return ShapeSet.grid(workload, **_grid(text))
    name, *rest = text.split(":")
    if name == "log-uniform":
        return ShapeSet.log_uniform(workload, *map(int, rest or ["16"]))
    if len(workload.dims) > 1:
        raise DietlabError(f"shapes of several dimensions are {SEVERAL_HELP}", repr(text), EXAMPLE)
    if name == "every" and not rest:
        return ShapeSet.every(workload)
    if name == "uniform":
        return ShapeSet.uniform(workload, *map(int, rest))
    if name == "random":
        return ShapeSet.random(workload, *map(int, rest or ["16"]))
    if name in TRAFFIC:
        return ShapeSet.traffic(workload, name, *map(int, rest))
    (only, dim), extents = only_dim(workload), [as_extent(int(extent)) for extent in text.split(",")]
    outside = [extent for extent in extents if extent not in dim]
    if outside and beyond:
        listed = ", ".join(f"{only}={extent}" for extent in outside)
        click.echo(f"note: outside the tuned range {only}={dim}: {listed}", err=True)
        return ShapeSet.extents(workload, sorted(set(extents)))
    return ShapeSet.grid(workload, **{only: extents})


def _grid(text: str) -> dict[str, list[int]]:
    """Returns the extents of each dimension out of ``"T=1,16;N=768"``."""
    pairs = (part.partition("=") for part in text.split(";"))
    return {name.strip(): [int(extent) for extent in listed.split(",")] for name, _, listed in pairs}


def parse_layers(layers: str, lengths: str, workload: HasDims) -> ShapeSet:
    """Returns the shape set of ``--layers`` and ``--lengths``. Some of its shapes are in the workload's
    ranges; a note says what is left out."""
    table, colon, n = lengths.partition(":")
    name, *drawn = layers.split("/")
    try:
        sizes: Any = [_size(size) for size in layers.split(",")] if ":" in layers else layers
        if name == HELD_OUT:
            sizes = drawn_layers(workload, *map(int, drawn))
        if table in TABLES or not table[:1].isdigit():
            found = ShapeSet.layers(sizes, table, workload, int(n) if colon else None)
        else:
            met = [input_size(length) for length in lengths.split(",")]
            found = ShapeSet.layers(sizes, met, workload)
    except (TypeError, ValueError) as error:
        if isinstance(error, DietlabError):
            raise
        invariant = f"layers are {LAYERS_HELP}; lengths are {LENGTHS_HELP}"
        raise DietlabError(invariant, f"{layers!r}, {lengths!r}", EXAMPLE) from None
    _note_left_out(found, sizes, workload)
    return found


def _note_left_out(shapes: ShapeSet, layers: Any, workload: HasDims) -> None:
    """Prints which layers lie outside the ranges, and the share of the calls that is left out with them and
    with lengths outside."""
    named, outside, count = layers_outside(layers, workload)
    which = f"{outside} of {count} layers, (N, K) = {named}; " if outside else ""
    if outside or shapes.dropped > ROUNDING:
        share = share_text(shapes.dropped)
        click.echo(
            f"note: outside the ranges of {workload}: {which}{share} of the calls are left out", err=True
        )


def input_size(text: str) -> int | tuple[int, ...]:
    """Returns a length, or the two sides of an image such as ``800x1333``."""
    sides = tuple(map(int, text.split("x")))
    return sides if len(sides) > 1 else sides[0]


def _size(text: str) -> tuple[int, int]:
    features, _, depth = text.partition(":")
    return int(features), int(depth)


def processor(path: str | None, threads: int | None, target: str = "cpu") -> Hardware:
    """Returns the processor of a preset, of a file, or of this machine, which is not measured here. A CPU has
    as many cores as ``threads`` (default: one).

    Raises:
        DietlabError: if there is no such preset or file, threads are given for a GPU, or this machine has
            fewer cores.
    """
    presets = Hardware.presets()
    if path is None:
        hardware = Hardware.detect(target, measure=False)
    elif path in presets:
        hardware = Hardware.preset(path)
    elif Path(path).exists():
        hardware = Hardware.load(path)
    else:
        rule = f"--hardware must be a JSON file or one of {', '.join(presets)}"
        raise HardwareError(rule, repr(path), closest(path, presets))
    if not hardware.limits.on_host:
        if threads is not None:
            remedy = f"{hardware.name} is used as a whole."
            raise DietlabError("--threads must be left out on a GPU", threads, remedy)
        return hardware
    if path is not None:
        return hardware.with_cores(threads) if threads else hardware
    require_cores(threads or 1)
    return hardware.with_cores(threads or 1)


def require_cores(threads: int) -> None:
    """Raises :class:`DietlabError` if this process may use fewer cores than ``threads``."""
    if threads > (cores := usable_cores()):
        remedy = f"Give at most {cores}: `dietlab doctor` says why."
        raise DietlabError("--threads must be at most the cores that this process may use", threads, remedy)


def page_or_reason(write: Callable[[], Path]) -> str:
    """Writes a page; returns its path, or a sentence on what it needs where that is not installed."""
    try:
        return str(write())
    except MissingDependencyError as error:
        return f"no HTML page was written: {error}"


def show(value: Any, as_json: bool, text: str) -> None:
    click.echo(json.dumps(value, indent=1) if as_json else text)

"""``dietlab layers``: lists the convolutions of a network, each with the command that tunes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.names import words
from dietlab.cli.options import EXTENTS_OF_NETWORKS, input_size, json_option, show, usual_sizes
from dietlab.problem import Dim, NetworkLayer, convolutions
from dietlab.problem.networks import NETWORKS, network_named
from dietlab.problem.traffic import TABLES


@click.command("layers")
@click.argument("network", type=click.Choice(list(NETWORKS)))
@click.option("--lengths", help=f"Sizes of the network's inputs: {EXTENTS_OF_NETWORKS}.")
@click.option("--batches", help="Numbers of images in a call, such as 1,8 (default: the usual ones).")
@click.option("--commands", is_flag=True, help="Print the commands that tune the layers.")
@click.option("--out", default="runs/layers", show_default=True, help="The folder of their studies.")
@json_option
def layers_command(
    network: str, lengths: str | None, batches: str | None, commands: bool, out: str, as_json: bool
) -> None:
    """List the distinct convolutions of a network.

    The table has the calls in one pass, the share of the network's flops, and the operator, whose ranges
    hold what the layer meets at the sizes.

    \b
    dietlab layers resnet50
    dietlab layers resnet50 --lengths 224,256,300x400 --batches 1
    dietlab layers whisper-base --commands --out runs/whisper
    """
    sizes = lengths or usual_sizes(network_named(network))
    try:
        counts = None if batches is None else [int(count) for count in words(batches)]
        found = convolutions(network, batches=counts, **_given(sizes))
    except ValueError as error:
        if isinstance(error, DietlabError):
            raise
        rule = f"sizes are {EXTENTS_OF_NETWORKS}; batches are numbers"
        raise DietlabError(rule, f"{sizes!r}, {batches!r}", "For example --lengths 224,256.") from None
    if commands:
        click.echo("\n".join(command(layer, network, sizes, out) for layer in found))
        return
    total = sum(layer.flops for layer in found)
    rows = [
        {
            "layer": layer.name,
            "calls": layer.calls,
            "flops": layer.flops,
            "share": layer.flops / total,
            "operator": layer.workload.to_json(),
            "shapes": layer.shapes.to_json(),
        }
        for layer in found
    ]
    show(rows, as_json, "\n".join([network_named(network).paper, "", *_table(found, total)]))


def _given(sizes: str) -> dict[str, Any]:
    """Returns the sizes as arguments of :func:`~dietlab.problem.convolutions`."""
    table, colon, n = sizes.partition(":")
    if table in TABLES:
        return {"sizes": table, "n": int(n) if colon else None}
    return {"sizes": [input_size(size) for size in words(sizes)]}


def _table(layers: Sequence[NetworkLayer], total: float) -> list[str]:
    rows = [("layer", "calls", "flops", "operator")]
    rows += [
        (layer.name, f"{layer.calls:.3g}", f"{layer.flops / total:.1%}", str(layer.workload))
        for layer in layers
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{name:<{widths[0]}}  {calls:>{widths[1]}}  {share:>{widths[2]}}  {operator}"
        for name, calls, share, operator in rows
    ]


def command(layer: NetworkLayer, network: str, sizes: str, out: str) -> str:
    """Returns the command that tunes a layer for what it meets."""
    work = layer.workload
    extents = {name: getattr(work, name) for name in ("N", *work.image, "IC", "OC")}
    dims = (f"--dim {name}={_extent(extent)}" for name, extent in extents.items())
    options = {
        "kernel": work.kernel[0],
        "stride": work.stride[0],
        "padding": work.padding[0][0],
        "groups": work.groups,
    }
    usual = {"stride": 1, "padding": 0, "groups": 1}
    kernel = (f"--{name} {value}" for name, value in options.items() if value != usual.get(name))
    met = f"--layers {network} --lengths {sizes}" if work.dims else ""
    return " ".join(
        filter(None, ("dietlab tune", work.operator, *dims, *kernel, met, f"--out {out}/{layer.name}"))
    )


def _extent(extent: Dim | int) -> str:
    return f"{extent.low}:{extent.high}" if isinstance(extent, Dim) else str(extent)

"""The options of a cluster that `serve` and `worker` share. Holds words only."""

from collections.abc import Callable
from typing import Any

import click

from polyport.cli.topics import about

cluster = about("Several machines (see docs/cluster.md)")
COMMON = (
    cluster(
        "--cluster",
        metavar="URL",
        help="The NATS server that all processes share: nats://USER:PASSWORD@HOST:4222, several with commas. Needs a --db that "
        "they share, too, and POLYPORT_SECRET.",
    ),
    cluster(
        "--cluster-prefix",
        metavar="NAME",
        default="polyport",
        show_default=True,
        help="What is on the NATS server is called so; processes of one prefix belong together.",
    ),
    cluster(
        "--cluster-lease",
        metavar="SECONDS",
        type=click.IntRange(1, 3600),
        default=6,
        show_default=True,
        help="A process that was not heard of for so long is gone: others go on with its runs.",
    ),
    cluster(
        "--cluster-replicas",
        metavar="N",
        type=click.IntRange(1, 5),
        default=1,
        show_default=True,
        help="How many NATS servers keep each thing; 3 survives the loss of one.",
    ),
)


def clustered(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every process of a cluster takes."""
    for option in reversed(COMMON):
        command = option(command)
    return command

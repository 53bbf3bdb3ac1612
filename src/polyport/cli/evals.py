"""`polyport eval`: the command and its options. What it does is in `cli.evaluate`, imported when it is used."""

from typing import Any

import click

from polyport.cli.topics import AGENT_HELP
from polyport.config.text import readable


@click.command("eval", epilog=AGENT_HELP)
@click.argument("agent")
@click.argument("evalsets", nargs=-1)
@click.option(
    "--metric",
    multiple=True,
    metavar="NAME[=THRESHOLD]",
    help="What to measure (repeatable); module:function for a metric of your own.",
)
@click.option(
    "--config", metavar="FILE", help="Metrics and thresholds. Default: test_config.json beside the first set."
)
@click.option("--threshold", type=float, metavar="SCORE", help="For metrics whose threshold --metric does not say.")
@click.option("--case", multiple=True, metavar="ID", help="Only this case (repeatable).")
@click.option(
    "--runs", default=1, show_default=True, metavar="N", type=click.IntRange(1, 1000), help="Play each case so often."
)
@click.option(
    "--parallel", default=4, show_default=True, metavar="N", type=click.IntRange(1, 64), help="Cases side by side."
)
@click.option(
    "--judge", default="", metavar="MODEL", help="For metrics that a model judges. Default: gemini-flash-latest."
)
@click.option("--app", default="", metavar="NAME", help="Which one to evaluate, if AGENT gives several.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON instead of a table.")
@click.option(
    "--save/--no-save", default=True, show_default=True, help="Keep results in .adk/eval_history of the agent's folder."
)
def eval_command(**words: Any) -> None:
    """Play the cases of EVALSETS against AGENT and score them.

    An EVALSET is a file of ADK's format, a folder of them, or the id of one in the agent's folder; `:case1,case2` behind it
    picks cases. Without any, all sets in the agent's folder are played. Cases have sessions of their own in memory.

    Exit codes: 0 if all cases passed; 1 if not, or if something failed.
    """
    from polyport.cli.evaluate import Options, run

    text: dict[str, Any] = {name: readable(word) if isinstance(word, str) else word for name, word in words.items()}
    if not run(Options(**text)):
        raise SystemExit(1)

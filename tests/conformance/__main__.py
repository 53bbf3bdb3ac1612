"""`python -m tests.conformance --port N`: serve the contract agent until Ctrl-C."""

import sys
from pathlib import Path

import click
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.agent import Options, contract
from polyport import App
from polyport.protocols.guard import Guard


@click.command()
@click.option("--port", type=int, required=True, help="The port of HTTP; gRPC is on the next one.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--push", is_flag=True, help="With push notifications, also to this machine.")
@click.option("--extended", is_flag=True, help="With an extended card, for everybody.")
@click.option("--no-streaming", is_flag=True)
@click.option("--required-ext", is_flag=True, help="With an extension that every call must name.")
@click.option("--v03", is_flag=True, help="The agent of the kit for 0.3, and 0.3 beside 1.0.")
@click.option("--codes", type=click.Choice(["1.0.1", "1.0.0"]), default="1.0.1", show_default=True)
def main(
    port: int, host: str, push: bool, extended: bool, no_streaming: bool, required_ext: bool, v03: bool, codes: str
) -> None:
    """Serve the contract agent of the A2A conformance kits."""
    options = Options(
        push=push,
        extended=extended,
        streaming=not no_streaming,
        required_ext=required_ext,
        v03=v03,
        codes=codes,
        grpc=f"{host}:{port + 1}",
    )
    agent, a2a = contract(options)
    app = App(agent, protocols=["rest", a2a], guard=Guard(bind_host=host))
    uvicorn.run(app.asgi, host=host, port=port, log_level="warning", timeout_graceful_shutdown=2)


main()

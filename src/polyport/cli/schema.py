"""`polyport schema`: the JSON Schema of agent files, for editors. Registered in `cli/main`."""

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of YAML agent files.

    Save it, and name it in the first line of an agent file, so that your editor completes and checks it:
    `# yaml-language-server: $schema=agent.schema.json`. Exit codes: 0.
    """
    from polyport.config.json_schema import json_schema  # needed by this choice only

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))

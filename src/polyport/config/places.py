"""How the files are called that make a folder an agent. Used by the loader, and by what watches folders; reads nothing."""

from pathlib import Path

AGENT_FILE = "agent.py"
ROOT_FILES = ("root_agent.yaml", "root_agent.yml")
YAML = (".yaml", ".yml")


def root_file(folder: Path) -> Path | None:
    """The YAML file that makes `folder` an agent, if it has one."""
    return next((folder / name for name in ROOT_FILES if (folder / name).is_file()), None)


def has_agent(folder: Path) -> bool:
    """Whether `folder` itself is an agent."""
    return (folder / AGENT_FILE).is_file() or root_file(folder) is not None

"""Write the page of all commands: ``python -m tools.commands > docs/commands.md``."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from whence.app.cli import app

HEAD = """# Commands

Every command with its options, as `whence COMMAND --help` shows them. A name written `module:name` is
looked up from the folder that you are in. A mistake is one line and exit code 2; an error in your own code
is one line and exit code 1, and `whence --debug COMMAND …` shows where it comes from.

This page is written by `python -m tools.commands`.
"""


def page() -> str:
    """Return the page, in Markdown."""
    commands = found(get_command(app))
    return "\n".join([HEAD, *(section(name, commands[name]) for name in sorted(commands))])


def found(group: Any, before: str = "whence") -> dict[str, Any]:
    """Name all commands in full, those of groups too."""
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        full = f"{before} {name}"
        commands |= found(command, full) if hasattr(command, "commands") else {full: command}
    return commands


def section(name: str, command: Any) -> str:
    """Describe one command: what it does, examples, its arguments and options."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    examples = [part for part in paragraphs if part.startswith("whence ")]
    about = [part for part in paragraphs if part not in examples]
    lines = [f"## {name}", "", "\n\n".join(about), ""]
    lines += [f"    {example}" for example in examples] + [""] * bool(examples)
    lines += ["| | |", "|---|---|"] + [row(parameter) for parameter in command.params if not parameter.hidden]
    return "\n".join(lines) + "\n"


def row(parameter: Any) -> str:
    """Describe one argument or option, with its default."""
    named = parameter.opts[0].startswith("-")
    metavar = parameter.metavar or ("" if getattr(parameter, "is_flag", False) else parameter.name.upper())
    called = f"{', '.join(parameter.opts)} {metavar}".strip() if named else metavar
    said = " ".join((parameter.help or "").split())
    if parameter.required:
        said += " Required."
    elif not isinstance(parameter.default, (bool, tuple, type(None))) and not callable(parameter.default):
        said += f" Default: {parameter.default}."
    return f"| `{called}` | {said.replace('|', '&#124;')} |"


if __name__ == "__main__":
    print(page(), end="")

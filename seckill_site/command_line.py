"""The command line of the site: the shop's commands first, and all in one language."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from django.core.management import ManagementUtility, get_commands
from django.core.management.base import BaseCommand
from django.core.management.color import color_style
from django.db import InterfaceError, OperationalError
from django.utils import translation

GROUPS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""The shop's commands by group, with what each does."""


class CommandLine(ManagementUtility):
    """Django's command line. Whatever the site's language, commands speak English, as logs do."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        command = super().fetch_command(subcommand)
        translation.deactivate_all()
        return command

    def execute(self) -> None:
        """Report a database that does not respond, or a full disk, in one line."""
        try:
            super().execute()
        except (OperationalError, InterfaceError) as error:
            if "--traceback" in self.argv:
                raise
            sys.exit(f"{self.prog_name}: the database refused or did not respond: {error}")

    def main_help_text(self, commands_only: bool = False) -> str:
        installed = set(get_commands())
        if commands_only or self.settings_exception is not None:
            return super().main_help_text(commands_only)
        title = color_style().NOTICE
        lines = ["", f"Type '{self.prog_name} help COMMAND' for the options of a command."]
        for group, commands in GROUPS.items():
            shown = {name: text for name, text in commands.items() if name in installed}
            if shown:
                lines += ["", title(group)]
                lines += [f"    {name:<18}{text}" for name, text in shown.items()]
        others = sorted(installed.difference(*GROUPS.values()))
        lines += ["", title("Of Django and its packages"), *_columns(others)]
        return "\n".join(lines)


def _columns(names: Sequence[str]) -> list[str]:
    rows = [names[start : start + 3] for start in range(0, len(names), 3)]
    return ["    " + "".join(f"{name:<25} " for name in row).rstrip() for row in rows]

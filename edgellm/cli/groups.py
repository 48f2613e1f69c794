"""Help in sections: commands with many options show them by what they are about."""

from __future__ import annotations

from typing import Any

import click


class GroupedOption(click.Option):
    """An option that belongs to a section of the help."""

    def __init__(self, *names: Any, group: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """Shows its own options first, then each section under its title."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            # Arguments are told of in the text above.
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                title = parameter.group if isinstance(parameter, GroupedOption) else "Options"
                sections.setdefault(title, []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

"""What plans, guarantees and estimators show of themselves: the same rows as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import Any

# `_doc_link_module` and `_doc_link_template`, by which scikit-learn's diagram of an estimator links
# to its page
DOCUMENTATION_LINK = (
    "sklearn_dpsco",
    "https://sklearn-dpsco.readthedocs.io/generated/sklearn_dpsco.{estimator_name}.html",
)

_CLASS = "sklearn-dpsco-overview"
# colours are those of the page around it, light or dark
_STYLE = (
    f"<style>.{_CLASS} {{overflow-x: auto;}} "
    f".{_CLASS} table {{border-collapse: collapse; margin: .4em 0; color: inherit;}} "
    f".{_CLASS} td, .{_CLASS} th {{border: 1px solid rgba(128, 128, 128, .4); padding: .15em .6em; "
    "text-align: left; color: inherit; background: transparent;}</style>"
)


@dataclass(frozen=True)
class Overview:
    """Lines, of which those that begin with "- " are items of a list, and a table below them."""

    lines: tuple[str, ...]
    columns: tuple[str, ...] = ()  # heads of the table
    layout: str = ""  # a format that makes a line of text of a row
    rows: Sequence[tuple[str, ...]] = ()
    most: int | None = None  # rows beyond are only counted; `to_frame` and the like have all

    def of(self, what: str) -> Overview:
        """The same with a line that says of what it is, below the first, which is the promise."""
        return replace(self, lines=(self.lines[0], what, *self.lines[1:]))

    @property
    def _more(self) -> str:
        n_omitted = len(self.rows) - len(self.rows[: self.most])
        return f"... and {n_omitted} more" if n_omitted else ""

    def text(self) -> str:
        """Lines of plain text, which fit a terminal."""
        lines = []
        for line in self.lines:  # in which replace-one is one word
            lines += wrap(line, 99, subsequent_indent="  ", break_on_hyphens=False)
        heads = [self.columns] if self.columns else []
        table = [self.layout.format(*row).rstrip() for row in (*heads, *self.rows[: self.most])]
        return "\n".join([*lines, *table, *([f"  {self._more}"] if self._more else [])])

    def html(self) -> str:
        """The same as HTML, all of it escaped."""
        table = [("th", self.columns)] if self.columns else []
        table += [("td", row) for row in self.rows[: self.most]]
        body = ""
        for tag, cells in table:
            body += f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
        body = f"<table>{body}</table>" if body else ""
        lines = ""
        for is_item, group in groupby(self.lines, lambda line: line.startswith("- ")):
            tag = "li" if is_item else "div"
            shown = "".join(f"<{tag}>{escape(s.removeprefix('- ').strip())}</{tag}>" for s in group)
            lines += f"<ul>{shown}</ul>" if is_item else shown
        more = f"<div>{escape(self._more)}</div>" if self._more else ""
        return f'{_STYLE}<div class="{_CLASS}">{lines}{body}{more}</div>'


class Overviewed:
    """Mixin of what has a guarantee: `overview` as text, and as HTML in notebooks."""

    guarantee: Any
    _headline = ""  # a format of this object: of what the releases are

    def overview(self) -> Overview:
        """All releases, below a line that says of what."""
        return self.guarantee.overview().of(self._headline.format(self))

    def __str__(self) -> str:
        return self.overview().text()

    def _repr_html_(self) -> str:
        return self.overview().html()

"""What plans, guarantees and estimators show of themselves: the same rows as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from textwrap import shorten, wrap
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
    "text-align: left; color: inherit; background: transparent;} "
    f".{_CLASS} td.number {{text-align: right; font-variant-numeric: tabular-nums;}}</style>"
)
_PAGE = (
    ":root {color-scheme: light dark} "
    "body {font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em} "
    "div {margin: .5em 0; overflow-wrap: anywhere} table {display: block; overflow-x: auto} "
    "td, th {overflow-wrap: normal} "
    "body > div > div:first-child {font-size: 1.3em; font-weight: bold}"
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
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.columns)
        body = f"<tr>{heads}</tr>" if heads else ""
        for row in self.rows[: self.most]:
            cells = (f"<td{' class=number' * _is_number(s)}>{escape(s)}</td>" for s in row)
            body += f"<tr>{''.join(cells)}</tr>"
        body = f"<table>{body}</table>" if body else ""
        lines = ""
        for is_item, group in groupby(self.lines, lambda line: line.startswith("- ")):
            tag = "li" if is_item else "div"
            texts = (s.removeprefix("- ").strip().replace("[ ]", "\u2610", 1) for s in group)
            shown = "".join(f"<{tag}>{escape(s)}</{tag}>" for s in texts)
            lines += f"<ul>{shown}</ul>" if is_item else shown
        more = f"<div>{escape(self._more)}</div>" if self._more else ""
        return f'{_STYLE}<div class="{_CLASS}">{lines}{body}{more}</div>'


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return False
    return True


class Overviewed:
    """Mixin of what has a guarantee: `overview` as text, and as HTML in notebooks."""

    guarantee: Any
    _headline = ""  # a format of this object: of what the releases are

    def overview(self) -> Overview:
        """All releases, below a line that says of what."""
        return self.guarantee.overview().of(self._headline.format(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.overview().lines[0]}>"

    def __str__(self) -> str:
        return self.overview().text()

    def _repr_html_(self) -> str:
        return self.overview().html()

    def to_html(self) -> str:
        """The same as a file of its own, for any browser.

        Returns
        -------
        str
            All of it ASCII, so that any encoding of the file is right.
        """
        shown = self.overview()
        title = escape(shorten(shown.lines[0], 90))
        page = (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width">\n'
            f"<title>{title}</title>\n<style>{_PAGE}</style>\n</head>\n"
            f"<body>\n{shown.html()}\n</body>\n</html>\n"
        )
        return page.encode("ascii", "xmlcharrefreplace").decode()

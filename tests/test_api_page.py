"""The API page is complete."""

import re
from pathlib import Path

import sklearn_dpsco
from sklearn_dpsco import solvers

PAGE = Path(__file__).parent.parent / "doc" / "api.rst"
ENTRY = re.compile(r"^   ([A-Za-z][\w.]*)$", re.M)


def test_api_page_lists_every_public_name_once():
    listed = ENTRY.findall(PAGE.read_text())
    assert len(listed) == len(set(listed))
    assert set(sklearn_dpsco.__all__) - {"__version__"} <= set(listed)
    assert {f"solvers.{name}" for name in solvers.__all__} <= set(listed)

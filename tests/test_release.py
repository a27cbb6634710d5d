"""What a release says of itself is the same in all files that say it."""

import re
import tomllib
from pathlib import Path

import sklearn_dpsco

ROOT = Path(__file__).parent.parent
VERSION = sklearn_dpsco.__version__


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == VERSION


def test_the_changelog_begins_with_this_version_or_what_comes_after_it():
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert VERSION in titles[:2]
    assert titles[0] in (VERSION, "Unreleased")


def test_a_released_version_has_the_date_of_the_citation():
    citation = (ROOT / "CITATION.cff").read_text()
    day = re.search(r"^date-released: (.+)$", citation, re.M)[1]
    assert f"## {VERSION} ({day})" in (ROOT / "CHANGELOG.md").read_text()


def test_the_project_names_its_places():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Documentation", "Source", "Changelog"} <= set(urls)
    assert all(url.startswith("https://") for url in urls.values())
    citation = (ROOT / "CITATION.cff").read_text()
    assert urls["Documentation"] in citation
    assert urls["Source"] in citation

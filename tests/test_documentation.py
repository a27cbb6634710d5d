"""The code blocks of README and pages run one after the other."""

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from support import rest_is_slow

from sklearn_dpsco.metrics.releases import FORMULAS

ROOT = Path(__file__).parent.parent
DOC = ROOT / "doc"
# "python3" marks a block that is for other libraries, and does not run here
BLOCK = re.compile(r"^( *)\.\. code-block:: python\n\n((?:\1 {3}.*\n|\n)+)", re.M)
FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)
# these take seconds each, and `.ci/run` asks for them
SLOW = (
    "coming_from_scikit_learn.rst", "counts.rst", "extending.rst", "inference.rst", "scaling.rst",
    "time_to_event.rst", "user_guide.rst", "which_epsilon.rst", "workflow.rst",
)  # fmt: skip
ALONE = ("faq.rst", "index.rst")  # whose first block, copied into a file, runs as it stands
PAGES = ["README.md", *sorted(p.name for p in DOC.glob("*.rst") if BLOCK.search(p.read_text()))]


def blocks_of(page):
    if page == "README.md":
        return FENCED.findall((ROOT / page).read_text())
    return [dedent(block) for _, block in BLOCK.findall((DOC / page).read_text())]


def files_of_records(folder, table):
    """What the reader of the page on large tables is assumed to have."""
    (folder / "records").mkdir()
    for k in range(2):
        table[250 * k :][:250].to_parquet(folder / "records" / f"{k}.parquet")


@pytest.mark.filterwarnings("ignore")
@rest_is_slow("page", PAGES, {*PAGES} - {*SLOW})
def test_code_blocks_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).uniform(0, 1, (500, 3))
    # what the reader is assumed to have
    names = {"np": np, "X": X, "y": X @ [1.0, 0.5, 0.0], "X_new": X[:5], "n_samples": 500}
    names = {} if page in ALONE else names
    if page == "scaling.rst":
        names["features"] = ["a", "b", "c"]
        table = pd.DataFrame(100 * X, columns=names["features"])
        table["label"] = np.where(names["y"] > 0.7, "yes", "no")
        files_of_records(tmp_path, table)
    blocks = blocks_of(page)
    assert blocks
    with parallel_config("threading"):  # processes start in tests/contracts/test_parallel.py
        for number, block in enumerate(blocks):
            exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_nothing_is_installed_from_an_index():
    # the package is on none: whoever took its name there would be installed in its place
    pages = [ROOT / "README.md", *DOC.rglob("*.rst"), *ROOT.glob("[bes]*/**/*.py")]
    command = re.compile(r"pip install.*[ '\"`]sklearn_dpsco\b(?![-/])")
    assert [page.name for page in pages if command.search(page.read_text())] == []


def test_the_table_of_proofs_names_every_release():
    page = " ".join((DOC / "privacy" / "2_mechanisms.rst").read_text().split())
    code = "".join(path.read_text() for path in sorted((ROOT / "sklearn_dpsco").rglob("*.py")))
    of_parts = r'\("([a-z\' ]+)", (?:self\.)?\w+, (?:1|n_\w+|self\.n_\w+)\)'
    named = re.findall(rf'release_name.*= "(.+)"|Release\("(.+?)"|{of_parts}', code)
    names = {*FORMULAS, *(name for found in named for name in found if name)}
    assert len(names) > 50
    assert sorted(name for name in names if name not in page.partition("**Notation**")[0]) == []


def test_readme_points_at_what_is_there():
    links = re.findall(r"\]\(([^):]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_has_one_main_and_one_test_command():
    text = (ROOT / "README.md").read_text()
    for name in ("main", "test"):
        assert len(re.findall(rf"<!-- {name} command -->\n```\n[^\n]+\n```\n", text)) == 1


def test_the_table_of_releases_of_mirror_descent_is_whole():
    page = (DOC / "privacy" / "4_mirror_descent.rst").read_text()
    table = page.partition(".. csv-table::")[2].partition(".. _section")[0]
    rows = [line.split(";") for line in table.splitlines() if line.count(";") == 4]
    named = {name for row in rows for name in re.sub(r" \(.*", "", row[0]).strip().split(", ")}
    solvers = ROOT / "sklearn_dpsco" / "solvers"
    read = [solvers / f"{name}.py" for name in ("learned_units", "unit_descent", "inference")]
    text = "".join(path.read_text() for path in (*read, solvers.parent / "moments.py"))
    released = re.findall(r'\("([a-z ]+)", (?:self|step|tails|far|last)\b', text)
    assert len(released) > 25
    assert {*released, "target median", "target size"} - named == set()
    code = "".join(path.read_text() for path in solvers.parent.rglob("*.py"))
    functions = re.findall(r"`(?:\w+\.)?(\w+)`", " ".join(row[4] for row in rows))
    assert [name for name in functions if not re.search(rf"(def|class) {name}\b", code)] == []

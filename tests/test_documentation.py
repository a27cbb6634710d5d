"""The code blocks of the guide run as they stand, one after the other."""

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest

DOC = Path(__file__).parent.parent / "doc"
BLOCK = re.compile(r"^( *)\.\. code-block:: python\n\n((?:\1 {3}.*\n|\n)+)", re.M)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["index.rst", "user_guide.rst", "workflow.rst", "scaling.rst"])
def test_code_blocks_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOC / page).read_text())
    assert blocks
    X = np.random.default_rng(0).uniform(0, 1, (500, 3))
    # what the reader is assumed to have
    names = {"np": np, "X": X, "y": X @ [1.0, 0.5, 0.0], "X_new": X[:5], "n_samples": 500}
    if page == "scaling.rst":
        from sklearn_dpsco import DPMirrorClassifier

        names |= {"features": ["a", "b", "c"], "DPMirrorClassifier": DPMirrorClassifier}
        table = pd.DataFrame(100 * X, columns=names["features"])
        table["label"] = np.where(names["y"] > 0.7, "yes", "no")
        (tmp_path / "records").mkdir()
        for k in range(2):
            table[250 * k :][:250].to_parquet(tmp_path / "records" / f"{k}.parquet")
    for number, (_, block) in enumerate(blocks):
        exec(compile(dedent(block), f"{page}, block {number}", "exec"), names)

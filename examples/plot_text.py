"""
Text: a private classifier of notes, and the words that it goes by
==================================================================

Sparse text with thousands of columns, without a download: a row is the first paragraph of the
documentation of a function or class of an installed package. Is it about numbers (NumPy, SciPy,
scikit-learn), or of Python's standard library? **These texts are public**, and need no protection:
they stand for notes that do, such as those of a clinic or a help desk, one note a person.
"""

import re
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from sklearn_dpsco import DPLassoFWClassifier, DPLogisticRegression
from sklearn_dpsco.solvers import Selection


def folder_of(package):
    """Where the sources of a package are; nothing is imported."""
    if package == "stdlib":
        return Path(sysconfig.get_paths()["stdlib"])
    return Path(find_spec(package).origin).parent


def paragraphs(package):
    """The first paragraphs of the docstrings of a package, each once."""
    found, folder = {}, folder_of(package)
    for path in sorted(folder.rglob("*.py")):
        if {"tests", "test", "site-packages"} & set(path.relative_to(folder).parts):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        for first in re.findall(r':\n\s+[rR]?"""(.+?)(?:\n\s*\n|""")', text, re.DOTALL):
            found[first] = True
    return [text for text in found if len(text) > 20]


# %%
# The columns must not come from the private texts: that a rare word is in the vocabulary tells that
# somebody wrote it. ``CountVectorizer().fit(notes)`` does that, and frequencies (tf-idf) tell more.
# What may be used is a `HashingVectorizer`, which knows no words, or a vocabulary from elsewhere.
# Here it comes from the documentation of other packages, which stands for public texts of the
# field. `check_pipeline` finds a vectorizer that learns.

elsewhere = [text for package in ("numba", "sphinx", "docutils") for text in paragraphs(package)]
public = CountVectorizer(
    min_df=2, binary=True, token_pattern=r"[a-z]{2,}", stop_words=list(ENGLISH_STOP_WORDS)
).fit(elsewhere)
words = public.get_feature_names_out()

texts = {name: paragraphs(name) for name in ("numpy", "scipy", "sklearn", "stdlib")}
X = public.transform([text for one in texts.values() for text in one])
y = np.repeat([name != "stdlib" for name in texts], [len(one) for one in texts.values()])
order = np.random.default_rng(0).permutation(len(y))
train, test = np.split(order, [int(0.75 * len(y))])
print(f"{len(train)} notes, {len(words)} words")

# %%
# ``bounds_X=(0, 1)``: a word occurs or does not, and zeros stay zeros. A table of 64-bit indices or
# of float32, or one that was read with ``mmap_mode="r"``, is taken as it is and not copied.

settings = {"classes": [False, True], "bounds_X": (0, 1), "relation": "zero-out", "random_state": 0}
epsilons = (0.5, 1.0, 2.0, 4.0, 8.0)
models = {
    "descent": DPLogisticRegression(**settings),
    "selection": DPLassoFWClassifier(solver="selection", **settings),
    "selected twice": DPLassoFWClassifier(solver=Selection(min_selections=2), **settings),
}
plain = LogisticRegression(max_iter=1000).fit(X[train], y[train])
best = roc_auc_score(y[test], plain.decision_function(X[test]))
print(f"{'without privacy':16s} AUC {best:.3f}, accuracy {plain.score(X[test], y[test]):.3f}")
for name, model in models.items():
    aucs = []
    for epsilon in epsilons:
        start = time.perf_counter()
        model.set_params(epsilon=epsilon).fit(X[train], y[train])
        seconds = time.perf_counter() - start
        aucs.append(roc_auc_score(y[test], model.decision_function(X[test])))
        accuracy, n_words = model.score(X[test], y[test]), np.count_nonzero(model.coef_)
        print(
            f"{name:16s} epsilon {epsilon:3g}: AUC {aucs[-1]:.3f}, accuracy {accuracy:.3f}, "
            f"{n_words:4d} words, {seconds:.1f} s"
        )
    plt.plot(epsilons, aucs, marker="o", label=name)
plt.axhline(best, color="gray", linestyle="--", label="without privacy")
plt.xscale("log")
plt.xticks(epsilons, epsilons)
plt.minorticks_off()
plt.xlabel("epsilon (zero-out)")
plt.ylabel("AUC on other notes")
plt.legend()
plt.tight_layout()
plt.show()

# %%
# A model by selection has hard zeros: at most one coefficient for each of its steps, and with
# ``min_selections=2`` none that a single selection could have made, which is what noise does. The
# words below come from the private model, like everything that is shown of the training texts. (The
# seed is for this page: whoever knows it can take the noise away. Leave `random_state` out.)

chosen = models["selected twice"]
coef = chosen.coef_[0]
for j in np.argsort(-np.abs(coef))[: np.count_nonzero(coef)]:
    print(f"{words[j]:14s}{coef[j]:+.2f}")

# %%
# What was promised, and for whom: a *row* is protected, one note of one person. Somebody with ten
# notes needs ``max_rows_per_user=10``, or `groups`. Test scores above were computed without noise,
# which is fine for public texts only: of private ones, use `dp_score`.

print(chosen.guarantee_)

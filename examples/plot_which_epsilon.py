"""
Which epsilon
=============

Before any data are read: what a score costs, on public stand-ins made of a schema.

Nothing here is private. The tables are made of declared bounds and categories and of an assumed
score without privacy, and no budget is spent.
"""

# %%
# What is known
# -------------
# Columns and their bounds, that about a fifth of the labels are "yes", and from a published study
# that a logistic regression reaches an area under the ROC curve of about .80.

from sklearn.pipeline import make_pipeline

from sklearn_dpsco import (
    DPLogisticRegression,
    PrivacyUtilityDisplay,
    PublicEncoder,
    rows_needed,
)

encoder = PublicEncoder(
    {
        "age": (18, 98),
        "income": (0, 200_000),
        "school": ["none", "some", "degree"],
        "children": (0, 10),
        "member": bool,
    }
)
model = DPLogisticRegression(bounds_X=encoder, classes=["no", "yes"], relation="zero-out")
pipeline = make_pipeline(encoder, model)

# %%
# Scores against epsilon
# ----------------------
# A line for each number of rows: the more there are, the smaller an epsilon will do.

display = PrivacyUtilityDisplay.from_schema(
    pipeline,
    encoder,
    n_samples=[500, 2000, 8000],
    score_without_privacy=0.8,
    assumptions={"prevalence": 0.2},
    epsilons=[0.1, 0.3, 1, 3, 10],
    random_state=0,
)
_ = display.ax_.set_title("A made table with the columns of the schema")

# %%
# Rows for one score
# ------------------
# From how many rows do nine of ten fits at epsilon 1 reach .77?

n = rows_needed(pipeline, encoder, score=0.77, score_without_privacy=0.8, prevalence=0.2)
print(f"{n:,} rows")

"""Fitted estimators of scikit-learn as models, against their own outputs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

import whence
from whence import DualDA
from whence.errors import DataWarning, InvalidInputError, ModelError

NAMES = np.array(["setosa", "versicolor", "virginica"])


def iris() -> tuple[Any, Any]:
    pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, NAMES[y]


def explainer(**options: Any) -> DualDA:
    return DualDA(C=1.0, metric="raw", show_progress=False, **options)


def test_a_pipeline_is_explained_by_the_features_of_its_last_step(tmp_path: Path) -> None:
    X, y = iris()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    fitted = explainer().fit(pipeline, X, y)
    assert fitted.class_names_ == tuple(NAMES)
    features = pipeline[:-1].transform(X)
    np.testing.assert_allclose(fitted.bank_.features, features, rtol=1e-5, atol=1e-6)
    tests = X.iloc[[7, 60, 120]]
    whys = fitted.explain(tests, truth=y[[7, 60, 120]])
    chances = pipeline.predict_proba(tests)
    for why, chance, row in zip(whys, chances, features[[7, 60, 120]], strict=True):
        assert why.verdict.predicted == NAMES[chance.argmax()]
        assert why.probability == pytest.approx(chance.max(), abs=1e-5)
        assert why.sample.names == tuple(X.columns)
        assert why.sample.values == pytest.approx(row, abs=1e-5)
    plain = fitted.explain(tests.iloc[0], relative=False)[0]
    for pair, found in zip(plain.pairs, plain.maps["test"], strict=True):  # λ f(x) f(x_i), by hand
        lam = fitted.surrogate_.lam[pair.index, plain.target]
        np.testing.assert_allclose(found, lam * features[7] * features[pair.index], rtol=1e-3, atol=1e-5)
    assert len(whence.audit.wrong_labels(fitted, n=3)) == 3
    fitted.save(tmp_path / "iris.whence")
    loaded = whence.load(tmp_path / "iris.whence", pipeline, (X, y))
    torch.testing.assert_close(loaded.attribute(tests), fitted.attribute(tests))
    assert loaded.explain(tests)[0].probability == whys[0].probability


@pytest.mark.parametrize(
    "last",
    [LogisticRegression(), LinearSVC(), SGDClassifier(), RidgeClassifier()],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_linear_classifiers(last: Any, n_classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[: 50 * n_classes], y[: 50 * n_classes]
    model = make_pipeline(StandardScaler(), last).fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = explainer().fit(model, X, y)
    apart = type(last) is not LogisticRegression
    assert (
        any(isinstance(w.message, DataWarning) and "not calibrated" in str(w.message) for w in caught)
        == apart
    )
    assert [why.predicted for why in fitted.explain(X[::20])] == model.predict(X[::20]).tolist()
    decision = model.decision_function(X)
    logits = fitted.classifier_.logits(torch.as_tensor(fitted.bank_.features)).numpy()
    ours = logits[:, 1] - logits[:, 0] if n_classes == 2 else logits
    np.testing.assert_allclose(ours, decision, rtol=1e-3, atol=1e-4)


def test_regressions_and_searches() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 10]}).fit(
        X, y.astype(int)
    )
    fitted = explainer().fit(model, X, y.astype(int))
    assert fitted.task_.name == "regression"
    for why, value in zip(fitted.explain(X[:3]), model.predict(X[:3]), strict=True):
        assert float(why.verdict.predicted) == pytest.approx(value, rel=1e-3)


def test_texts_and_columns_of_several_kinds() -> None:
    pandas = pytest.importorskip("pandas")
    texts, y = ["cheap pills", "lunch at noon", "cheap offer", "noon meeting"] * 5, ["spam", "ham"] * 10
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y)
    why = explainer().fit(model, texts, y).explain("cheap lunch")[0]
    assert why.probability == pytest.approx(model.predict_proba(["cheap lunch"]).max(), abs=1e-6)
    assert why.sample.names == tuple(model[0].get_feature_names_out())
    frame = pandas.DataFrame({"town": ["a", "b", "c", "a"] * 10, "age": np.arange(40.0)})
    columns = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame, np.arange(40) // 20)
    why = explainer().fit(model, frame, np.arange(40) // 20).explain(frame.iloc[3])[0]
    assert why.probability == pytest.approx(model.predict_proba(frame.iloc[[3]]).max(), abs=1e-6)
    assert why.sample.names is not None
    assert why.sample.names[-1] == "standardscaler__age"


def test_what_is_not_linear_is_named() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ModelError, match=r"must be fitted and end in a linear model"):
        explainer().fit(make_pipeline(StandardScaler(), LogisticRegression()), X, y)
    with pytest.raises(ModelError, match=r"with 'coef_', such as LogisticRegression.* Got SVC"):
        explainer().fit(SVC().fit(X, y), X, y)
    with pytest.raises(ModelError, match="must be linear in the features of its last step"):
        explainer().fit(SVC(kernel="linear", decision_function_shape="ovr").fit(X, y), X, y)
    with pytest.raises(
        InvalidInputError, match=r"'y' must be classes that the model was fitted on, 0, 1, 2\. Got 7"
    ):
        explainer().fit(LogisticRegression(max_iter=1000).fit(X, y), X, np.where(y == 1, 7, y))

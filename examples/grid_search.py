"""scikit-learn's tools over an EventTable; single settings have flat names, such as train__epochs."""

from sklearn.model_selection import GridSearchCV, cross_val_score

import raindrop as rd
from raindrop.datasets.synthetic import planted_graph

table = planted_graph(200, times=20).table
quick = {"train.epochs": 2, "train.holdout": 0.0}
search = GridSearchCV(
    rd.Classifier(config=quick),
    {"train__learning_rate": [1e-3, 3e-3], "model__observation_dim": [4, 8]},
    scoring="roc_auc",
    cv=2,
)
search.fit(table, table.labels)
print(search.best_params_, round(search.best_score_, 3))
print(cross_val_score(rd.Classifier(config=quick), table, table.labels, cv=2))

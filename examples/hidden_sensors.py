"""How much does a model lose when sensors fail?"""

import raindrop as rd
from raindrop.datasets.synthetic import planted_graph
from raindrop.table.hide import hide_random_sensors, hide_sensors

planted = planted_graph(300, times=30)
train, val, test = planted.table.split(seed=0)
clf = rd.Classifier(config={"train.epochs": 3}).fit(train, validation=val)
for share in (0.0, 0.25, 0.5):
    figures = clf.evaluate(hide_random_sensors(test, share, seed=0))
    print(f"{share:.0%} of the sensors hidden: AUROC {figures['auroc']:.3f}")
print("one sensor dead:", round(clf.evaluate(hide_sensors(test, [planted.edges[0][0]]))["auroc"], 3))

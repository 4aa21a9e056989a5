"""Train on the pairs of one week, and go on with those of the next: python examples/weekly.py

On Monday 150 groups are known, on Friday 150 more. Each of 200 graphs of 100 other groups searches for its partner by
cosine. Friday starts from the weights of Monday, and is compared with as many epochs from scratch. Expect a recall@1 of
20 to 35 % on Monday and 2 to 9 points more on Friday (seeds 0 to 5), in 10 seconds.
"""

import argparse

from graphcl import GraphCL
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.evaluate import rank_queries

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
graphs = synthetic_pairs(options.seed, num_groups=400)
monday, week, test = graphs[:300], graphs[:600], graphs[600:]


def recall(model: GraphCL) -> float:
    return rank_queries(model.transform(test), [graph.group for graph in test]).percent()["recall_at_1"]


settings = {"positives": "group", "epochs": 15, "batch_size": 64, "random_state": options.seed}
GraphCL(**settings).fit(monday).save("monday.pt")
model = GraphCL.load("monday.pt")
before = recall(model)
model.set_params(warm_start=True, epochs=5).fit(week).save("friday.pt")  # or: graphcl run --init monday.pt
scratch = recall(GraphCL(**{**settings, "epochs": 5}).fit(week))
print(f"recall@1: Monday {before:.1f} %, Friday {recall(model):.1f} %; as many epochs from scratch {scratch:.1f}")

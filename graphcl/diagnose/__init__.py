"""Answer what carries a score: edges, features, sizes, copies or training. `run.diagnose` holds the steps."""

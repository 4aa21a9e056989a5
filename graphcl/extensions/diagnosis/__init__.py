"""Answer what carries a score: edges, features, sizes, copies or training; see `graphcl diagnose --help`."""

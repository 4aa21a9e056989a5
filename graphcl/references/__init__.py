"""Rows that trained embeddings are compared with; a file registers one or two, see `graphcl.references.rows`."""

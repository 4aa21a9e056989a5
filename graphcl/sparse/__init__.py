"""Sparse embeddings: WL patterns with learned weights, and search by an inverted index."""

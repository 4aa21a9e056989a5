"""Sparse embeddings: WL patterns with learned weights, and search in them."""

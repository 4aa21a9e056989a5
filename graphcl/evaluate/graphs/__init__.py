"""Evaluators of embeddings of whole graphs."""

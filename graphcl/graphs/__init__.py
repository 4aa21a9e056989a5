"""Batches of graphs: layout, restriction, splitting, and operations on segments."""

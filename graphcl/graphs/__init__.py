"""Layout of a batch of graphs, and operations on its segments."""

"""The engine of the pairwise losses: pairs, negatives, dense and tiled evaluation."""

"""Implementation of the pairwise losses: choice of pairs, and dense or tiled reductions over the negatives."""

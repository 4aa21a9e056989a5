"""The commands embed, show, pack and transfer; run and sweep are in `graphcl.run` and `graphcl.sweep`."""

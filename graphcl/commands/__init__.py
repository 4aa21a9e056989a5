"""The commands embed, export, pack, show and transfer; run and sweep are in `graphcl.run` and `graphcl.sweep`."""

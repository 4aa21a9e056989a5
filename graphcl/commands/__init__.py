"""The commands besides run and sweep: embed, show, pack, transfer."""

"""What a run trains on and scores: graphs as two views, members of groups, listed pairs, and kinds of extensions."""

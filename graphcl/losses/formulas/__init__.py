"""One loss per file, with its equation and its source; a file added here registers its loss everywhere."""

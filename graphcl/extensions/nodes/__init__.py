"""The nodes of one graph: data sets, GRACE, BGRL and DGI, an encoder, evaluators, rows, the loader of neighbours."""

"""Several processes: launch, collectives and synchronised BatchNorm."""

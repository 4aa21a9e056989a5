"""Distributed training: launch, collectives, averaged gradients and synchronised BatchNorm."""

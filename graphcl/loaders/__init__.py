"""Cut batches out of data sets: resident on the device, streamed, or by sampled neighbours."""

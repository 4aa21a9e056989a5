"""Cut batches out of data sets: resident on the device, or streamed."""

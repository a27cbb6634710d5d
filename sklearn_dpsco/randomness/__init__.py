"""Random streams from a cipher, exact samplers, random batches."""

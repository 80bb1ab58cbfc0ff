"""gpupool for Python. What there is is in gpupool.torch: the pool as PyTorch's allocator."""

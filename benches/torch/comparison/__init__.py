"""PyTorch's own allocator against regraph as PyTorch's allocator, on the same captures."""

"""Where `torch_memory_saver` keeps what it loads before others."""

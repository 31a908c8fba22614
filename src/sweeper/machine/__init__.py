"""What the machine offers: cores, memory, GPUs, as far as this process may use them."""

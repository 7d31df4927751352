"""``make demo``: real models, unmodified and with random weights, compiled and compared with eager."""

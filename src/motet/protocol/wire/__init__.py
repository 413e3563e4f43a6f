"""Frames to bytes and back: packing, fragmentation, and decoding that accepts any bytes."""

"""Files on disk become declarations."""

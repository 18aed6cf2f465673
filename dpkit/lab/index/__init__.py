"""What the front page alone needs."""

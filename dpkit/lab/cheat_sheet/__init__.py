"""What the cheat sheet alone needs."""

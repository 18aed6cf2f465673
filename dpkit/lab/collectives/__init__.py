"""What the chapter ``collectives`` alone needs."""

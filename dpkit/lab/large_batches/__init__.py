"""What the chapter ``large-batches`` alone needs."""

"""What the chapter ``limits`` alone needs."""

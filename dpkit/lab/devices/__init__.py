"""What the chapter ``devices`` alone needs."""

"""What the chapter ``overlap`` alone needs."""

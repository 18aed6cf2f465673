"""What the chapter ``practice`` alone needs."""

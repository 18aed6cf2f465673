"""What the chapter ``splitting`` alone needs."""

"""What the chapter ``own-script`` alone needs."""

"""What the chapter ``layer-partitioning`` alone needs."""

"""What the chapter ``network-partitioning`` alone needs."""

"""What the chapter ``data-parallelism`` alone needs."""

"""What the chapter ``data-parallelism-concise`` alone needs."""

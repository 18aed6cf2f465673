"""What the chapters need beside the method: data, models and pictures."""

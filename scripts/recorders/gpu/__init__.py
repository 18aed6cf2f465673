"""What can only be timed on a GPU."""

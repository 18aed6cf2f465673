"""What the chapter ``memory`` alone needs: checks of its exercises."""

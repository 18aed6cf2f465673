"""What the chapter ``data-parallelism`` draws and checks."""

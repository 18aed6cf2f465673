# refused: k80, n = 10
def new_chapter_rate(n, accelerator):
    return accelerator.flops_per_second["float32"]


# refused: it returned None
def new_chapter_rate(n, accelerator):
    pass

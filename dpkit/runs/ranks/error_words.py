"""What an error of a rank is called in the message of its launch."""


class WordsError(RuntimeError):
    """How a rank has ended, where this process has nothing but the words.

    Such as "the script has ended with exit status 3", or the kind and the
    text of an error whose class only the process of the rank has.
    """


def in_words(error: BaseException) -> str:
    """Return the kind of an error and its text: "ValueError: too few".

    The text of an error is what a program has written for it, and may fail.
    """
    try:
        text = str(error)
    except BaseException:  # as in Python's tracebacks
        text = "<exception str() failed>"
    if isinstance(error, WordsError):
        return text
    # An error of a DataLoader's worker ends in the lines of its traceback.
    return f"{type(error).__name__}: {text}".rstrip(": \n")

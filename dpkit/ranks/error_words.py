"""What an error of a rank is called in the message of its launch."""


class ErrorInWords(RuntimeError):
    """How a rank has ended, where there is no error to raise but its words.

    Such as "the script has ended with exit status 3".
    """


def in_words(error: BaseException) -> str:
    """Return the kind of an error and its text: "ValueError: too few".

    The text of an error is what a program has written for it, and may fail.
    """
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"  # as Python's tracebacks have it
    if isinstance(error, ErrorInWords):
        return text
    return f"{type(error).__name__}: {text}".rstrip(": ")

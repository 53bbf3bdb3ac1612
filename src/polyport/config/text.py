"""Words for people, and text that came from the operating system. Used by the loader and the command line; imports nothing."""


def readable(text: str) -> str:
    """`text` with the bytes that could not be decoded (of a file name, of an argument) read as UTF-8 or replaced."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def count(number: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {word}{'' if number == 1 else 's'}"

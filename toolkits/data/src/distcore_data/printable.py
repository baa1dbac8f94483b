"""Names that data or users gave, in a line of text for people."""


def printable(text: str) -> str:
    r"""The text, with Python's escapes of what would break a line or hide in it: line ends, tabs,
    other control characters, marks that turn the direction, lone surrogates.

    Files that machines read (csv, JSON, YAML) have escapes of their own, and names as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)

"""Words for people: numbers with their nouns. Pure."""


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 chunk", "2 chunks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

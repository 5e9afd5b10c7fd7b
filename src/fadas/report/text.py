"""Text from outside, made safe to show. Names, reasons and paths come from files and from other machines.

| text goes to             | use                                         |
|--------------------------|---------------------------------------------|
| a terminal, a log        | `show_line`; `show_lines` keeps line breaks |
| HTML                     | `html_text`                                 |
| a matplotlib figure      | `figure_text`                               |
"""

from html import escape

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONGEST_IN_FIGURE = 300  # characters: a wider picture would need too much memory


def show_line(text: str, limit: int | None = None) -> str:
    """Return text for one line, with every character that cannot be printed as an escape sequence.

    These are control characters, line breaks, characters that change the direction of writing, and lone surrogates:
    what `repr` escapes too. The escapes are those of TOML.

    Args:
        text: Any text.
        limit: The number of characters to keep. The middle of a longer text is left out.

    Example:
        >>> print(show_line("fadas\\x1b[31m"))
        fadas\\u001b[31m
    """
    shown = text if text.isprintable() else "".join(map(_escape, text))
    if limit is None or len(shown) <= limit:
        return shown
    end = limit // 4
    return f"{shown[: limit - end - 5]} ... {shown[-end:]}"


def show_lines(text: str) -> str:
    """Return text as `show_line` does, but keep its line breaks."""
    return "\n".join(map(show_line, text.split("\n")))


def html_text(text: str) -> str:
    """Return text as `show_lines` does, with the characters escaped that mean something in HTML."""
    return escape(show_lines(text))


def figure_text(text: str) -> str:
    """Return text that matplotlib draws as it is: no formulas, and no names that a legend hides."""
    shown = show_line(text, _LONGEST_IN_FIGURE).replace("$", r"\$")
    return f" {shown}" if shown[:1] in ("", "_") else shown


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")

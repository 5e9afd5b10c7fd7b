"""The colour and the line style of each method: the same in every figure and in every report."""

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

# The labels that experiments usually give to the presets.
COLOURS = {
    "fadas": "#1769aa",
    "fadas-da": "#d1344b",
    "fedbuff": "#1f9254",
    "fedasync": "#d97a12",
    "ca2fl": "#7a4fb5",
    "fedavg": "#4d5966",
    "fedadam": "#8a5a44",
    "fedams": "#c2468f",
    "fedyogi": "#128a9c",
    "fedadagrad": "#8f8a12",
    "fedprox": "#6d86a8",
    "fednova": "#4a3fa6",
    "scaffold": "#0d6b63",
    "scaffold-async": "#5f9a12",
    "fedlalr": "#a8500b",
    "centralised": "#000000",
    "local-only": "#9a9a9a",
}
_OTHERS = (
    "#2f7ed8", "#c0392b", "#16a085", "#e67e22", "#8e44ad", "#5d6d7e", "#b7950b", "#d6336c",
    "#0b7285", "#74560f", "#5c940d", "#3b5bdb", "#9c36b5", "#a61e4d", "#087f5b", "#495057",
)  # fmt: skip
DASHES = ("-", "--", "-.", (0, (1, 1)))


class Look(NamedTuple):
    """How a method is drawn.

    Attributes:
        colour: Its colour, as "#rrggbb".
        dash: The number of its line style in `DASHES`; 0 is a solid line.
    """

    colour: str
    dash: int = 0


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each method.

    The colour depends on the name alone: a preset has a fixed colour, any other name one of sixteen. If two methods of
    a report share a colour, their line styles differ. "fadas (lr=0.1)" has the colour of "fadas", if it is free enough.

    Args:
        names: The names of the methods, in the order of the report.

    Example:
        >>> looks_of(["fadas", "fadas (other)"])
        {'fadas': Look(colour='#1769aa', dash=0), 'fadas (other)': Look(colour='#1769aa', dash=1)}
    """
    used: dict[str, int] = {}
    looks: dict[str, Look] = {}
    for name in names:
        colour = _colour(name.partition(" (")[0])
        if used.get(colour, 0) >= len(DASHES):
            colour = _colour(name)
        looks[name] = Look(colour, used.get(colour, 0) % len(DASHES))
        used[colour] = used.get(colour, 0) + 1
    return looks


def _colour(name: str) -> str:
    return COLOURS.get(name) or _OTHERS[crc32(name.encode(errors="surrogatepass")) % len(_OTHERS)]

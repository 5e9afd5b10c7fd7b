"""The colour and the line style of each method: the same in every figure and in every report."""

from collections.abc import Iterable, Mapping
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
_ALIKE = 70.0  # a difference of colours that is hard to see in a thin line; presets differ by more


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
    a report have the same colour, or colours that look alike, their line styles differ. "fadas (lr=0.1)" has the colour
    of "fadas", if it is free enough.

    Args:
        names: The names of the methods, in the order of the report.

    Example:
        >>> looks_of(["fadas", "fadas (other)"])
        {'fadas': Look(colour='#1769aa', dash=0), 'fadas (other)': Look(colour='#1769aa', dash=1)}
    """
    looks: dict[str, Look] = {}
    for name in names:
        colour = _colour(name.partition(" (")[0])
        if len(_dashes_of_alike(colour, looks)) >= len(DASHES):
            colour = _colour(name)
        taken = _dashes_of_alike(colour, looks)
        free = [dash for dash in range(len(DASHES)) if dash not in taken]
        looks[name] = Look(colour, free[0] if free else len(looks) % len(DASHES))
    return looks


def _dashes_of_alike(colour: str, looks: Mapping[str, Look]) -> set[int]:
    """Return the line styles that methods of this colour, or of one that looks alike, have already."""
    return {look.dash for look in looks.values() if _difference(look.colour, colour) < _ALIKE}


def _difference(one: str, other: str) -> float:
    """Return how different two colours look: a weighted distance, for eyes that see green best."""
    first, second = ([int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in (one, other))
    red, green, blue = (a - b for a, b in zip(first, second, strict=True))
    mean = (first[0] + second[0]) / 2
    return ((2 + mean / 256) * red**2 + 4 * green**2 + (2 + (255 - mean) / 256) * blue**2) ** 0.5


def _colour(name: str) -> str:
    return COLOURS.get(name) or _OTHERS[crc32(name.encode(errors="surrogatepass")) % len(_OTHERS)]

"""What the fuzz tests share: how much they try, what a command may do, and values that are hostile or odd."""

import os

from hypothesis import HealthCheck, settings, strategies as st

from helpers.cli import call_fadas

EXAMPLES = int(os.environ.get("FADAS_FUZZ", "30"))


FUZZ = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check_fadas(*arguments) -> int:
    """Run a command. Its exit code is 0, 2 with exactly one line, or 3: runs diverged. It prints no traceback.

    Nothing it prints can change the terminal.
    """
    code, output, errors = call_fadas(*arguments)
    assert code in (0, 2, 3), errors
    if code:
        lines = [line for line in errors.splitlines() if line.strip() and "fadas: warning: " not in line]
        assert len(lines) == 1 or code == 3, errors
        assert lines[-1].startswith("fadas: ")
        assert "Traceback" not in errors
    assert find_raw(output + errors) == set()
    return code


def find_raw(text: str) -> set[str]:
    """The characters that no terminal should get, except line breaks."""
    return {character for character in text if not character.isprintable() and character != "\n"}


HOSTILE = (
    r"$\frac{$",
    "$x$ $$ \\$",
    "\ud800",
    "\udcff\x00",
    "\x1b[2J\x1b]0;title\x07",
    "a\nfadas 99%",
    "a\r\x1b[1A\x9b31m",
    "\u202egnp.exe",
    "[red]x[/red] [/] [link=http://x.org]y",
    ":bug: {task.name} %s",
    "_hidden",
    "",
    "\\",
    '<script>alert(1)</script> id="x" url(#y)',
    "日本語 😀 ﷽",
    "W" * 255,
)


texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=()), max_size=20)


numbers = (
    st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**400, 2**53, 2**63, 2**64, 1e99, -1e99, 1e-320, 1e308])
    | st.floats()
)


odd_values = st.recursive(
    texts | numbers | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)

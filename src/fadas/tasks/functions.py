"""The functions of Python's standard library, as sets of words.

A word is the type of a syntax node ("<Return>"), an identifier ("read_line") or a part of one ("read"). A function's
words are those of its arguments and its body. Its own name is left out wherever it occurs, and so are decorators,
strings and comments.
"""

import ast
import hashlib
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fadas.errors import ConfigError

FORMAT = 1  # raise it when the words of the same sources change
LEFT_OUT = {"test", "idlelib", "lib2to3", "pydoc_data", "ensurepip"}  # modules
SKIPPED_FOLDERS = {"test", "tests", "__pycache__"}  # within packages
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A function of the standard library.

    Attributes:
        module: The top-level module or package.
        place: The file and the outermost function or method: "json/decoder.py:JSONDecoder.decode". Functions of the
            same place, such as a function and those defined in it, share text.
        target: The first word of its name.
        words: The distinct words of its arguments and body, sorted.
    """

    module: str
    place: str
    target: str
    words: tuple[str, ...]


def library_folder() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def read_sources(folder: Path) -> dict[str, bytes]:
    """Return the source files of the standard library by path, in a fixed order. Tests are left out.

    Only modules that Python itself lists are read, so it does not matter what else is installed.

    Raises:
        ConfigError: There are no source files.
    """
    paths: list[Path] = []
    for module in sys.stdlib_module_names - LEFT_OUT:
        paths += [folder / f"{module}.py"] if (folder / f"{module}.py").is_file() else []
        for parent, folders, files in os.walk(folder / module):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            paths += [Path(parent, name) for name in files if name.endswith(".py")]
    if not paths:
        raise ConfigError(
            f"the source files of Python's standard library are not in {folder}; use a Python that comes with them"
        )
    try:
        return dict(sorted((path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths))
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename} ({error.strerror})") from None


def digest_sources(sources: dict[str, bytes]) -> str:
    """Return a digest of the sources, of the Python version that parses them, and of what counts as a word."""
    digest = hashlib.sha256(repr((FORMAT, sys.version_info[:3])).encode())
    for path, content in sources.items():
        digest.update(f"\n{path} {len(content)}\n".encode() + content.replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def parse_functions(sources: dict[str, bytes]) -> list[Function]:
    """Return the functions of all sources. Of functions with the same words and target, only the first is kept."""
    functions: dict[tuple[str, tuple[str, ...]], Function] = {}
    for path, content in sources.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in strings
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):  # a template, or a file of another version
                continue
        module = path.partition("/")[0].removesuffix(".py")
        for place, function in _find_definitions(tree, path + ":", False):
            parts = name_parts(function.name)
            if parts:
                words = tuple(sorted(_words_of(function)))
                functions.setdefault((parts[0], words), Function(module, place, parts[0], words))
    return list(functions.values())


def name_parts(name: str) -> list[str]:
    """Return the parts of an identifier in lower case.

    Example:
        >>> name_parts("_readHTTPHeaders_v2")
        ['read', 'http', 'headers', 'v', '2']
    """
    return [part.lower() for part in _PART.findall(name)]


def _find_definitions(node: ast.AST, place: str, inside: bool) -> Iterator[tuple[str, _Definition]]:
    """Yield all functions below a node, with the place of the outermost function around each."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            own = place if inside else place + child.name
            yield own, child
            yield from _find_definitions(child, own, True)
        elif isinstance(child, ast.ClassDef):
            yield from _find_definitions(child, place if inside else f"{place}{child.name}.", inside)
        elif not isinstance(child, ast.expr):  # an expression holds no definition
            yield from _find_definitions(child, place, inside)


def _words_of(function: _Definition) -> set[str]:
    """Return the words of a function's arguments and body."""
    docstring = ast.get_docstring(function, clean=False) is not None
    kinds, names = set[type[ast.AST]](), set[str]()
    nodes: list[ast.AST] = [function.args, *function.body[docstring:]]
    while nodes:
        node = nodes.pop()
        kinds.add(type(node))
        if isinstance(node, ast.Constant):  # a string is not a word
            continue
        for field in node._fields:
            value = getattr(node, field)
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, str):
                    names.update(part.split("."))  # `import a.b`
                elif isinstance(part, ast.AST) and not isinstance(part, ast.expr_context):  # which says nothing
                    nodes.append(part)
    own = _plain(function.name)
    words = {f"<{kind.__name__}>" for kind in kinds}
    words.update(*([name.lower(), *name_parts(name)] for name in names if _plain(name) != own))
    return words


def _plain(name: str) -> str:
    """Return a name as it is compared with another: `_getValue`, `get_value` and `__getvalue__` are the same."""
    return name.replace("_", "").lower()

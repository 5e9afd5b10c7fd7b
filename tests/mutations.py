"""Small changes to code, such as `<` instead of `<=`. tests/mutants.py tries whether the tests notice them."""

import ast
import fnmatch
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

FLIPPED = {
    ast.Lt: ["<=", ">="], ast.LtE: ["<", ">"], ast.Gt: [">=", "<="], ast.GtE: [">", "<"], ast.Eq: ["!="],
    ast.NotEq: ["=="], ast.Is: ["is not"], ast.IsNot: ["is"], ast.In: ["not in"], ast.NotIn: ["in"],
}  # fmt: skip
SWAPPED = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.BitOr: "&", ast.BitAnd: "|", ast.BitXor: "|", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
OPERATOR = re.compile(rb"\bnot\s+in\b|\bis\s+not\b|\bin\b|\bis\b|\band\b|\bor\b|\*\*|//|<<|>>|[<>=!]=|[-+*/%|&^<>]")
MESSAGES = {"log", "warn"}  # functions whose arguments are not changed


class Mutant(NamedTuple):
    """One change: the bytes from `begin` to `end` of a file become `text`."""

    file: str
    line: int
    where: str  # the class and function; empty: outside of both
    change: str  # the whole line before -> after
    begin: int
    end: int
    text: bytes

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.change}"


def is_text(node: ast.expr) -> bool:
    """Is this a text or bytes? Another operator would only be an error."""
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str | bytes)


class Finder(ast.NodeVisitor):
    """Collects the changes to make in a file. Annotations, decorators, protocols and messages are left out."""

    def __init__(self, file: str, content: bytes) -> None:
        self.file, self.content, self.scope = file, content, list[str]()
        self.found: list[Mutant] = []
        self.begins = [0]  # of the lines
        for line in content.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))
        self.visit(ast.parse(content))

    def add(self, begin: int, end: int, text: str) -> None:
        line = sum(start <= begin for start in self.begins)
        first, last = self.begins[line - 1], min(start for start in self.begins if start >= end)
        before, after = self.content[first:last], self.content[first:begin] + text.encode() + self.content[end:last]
        change = " -> ".join(" ".join(part.decode().split()) for part in (before, after))
        self.found.append(Mutant(self.file, line, ".".join(self.scope), change, begin, end, text.encode()))

    def span(self, node: Any) -> tuple[int, int]:
        return self.begins[node.lineno - 1] + node.col_offset, self.begins[node.end_lineno - 1] + node.end_col_offset

    def replace(self, node: ast.AST, text: str) -> None:
        self.add(*self.span(node), text)

    def replace_between(self, left: ast.AST, right: ast.AST, *texts: str) -> None:
        """Replace the operator between two expressions."""
        if found := OPERATOR.search(self.content, self.span(left)[1], self.span(right)[0]):
            for text in texts:
                self.add(*found.span(), text)

    def visit_ClassDef(self, node: Any) -> None:
        if any("Protocol" in ast.unparse(base) for base in getattr(node, "bases", ())):
            return
        self.scope.append(node.name)
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)] if hasattr(node, "args") else []
        for child in [*defaults, *node.body]:
            self.visit(child)
        self.scope.pop()

    visit_FunctionDef = visit_ClassDef

    def visit_Assign(self, node: Any) -> None:
        """Without an assignment an attribute or an item keeps its value. A name would only be unknown."""
        target = node.targets[0] if hasattr(node, "targets") else node.target
        if isinstance(getattr(target, "elts", [target])[0], ast.Attribute | ast.Subscript):
            self.replace(node, "pass")
        if node.value and getattr(target, "id", None) != "__all__":
            self.visit(node.value)

    visit_AnnAssign = visit_Assign

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.replace(node, "pass")
        self.replace_between(node.target, node.value, SWAPPED[type(node.op)])
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        self.replace(node, "pass")
        called = getattr(node.value, "func", None)
        if getattr(called, "attr", getattr(called, "id", None)) not in MESSAGES:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)

    def visit_Raise(self, node: ast.stmt) -> None:
        self.replace(node, "pass")

    visit_Break = visit_Continue = visit_Delete = visit_Raise

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not isinstance(node.value, ast.Constant):
            self.replace(node.value, "None")
        self.generic_visit(node)

    def visit_If(self, node: Any) -> None:
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            begin, end = self.span(node.test)
            self.add(begin, end, f"not ({self.content[begin:end].decode()})")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Compare(self, node: ast.Compare) -> None:
        terms = [node.left, *node.comparators]
        for left, operator, right in zip(terms, node.ops, terms[1:]):
            self.replace_between(left, right, *FLIPPED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self.replace_between(left, right, "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        types = isinstance(node.op, ast.BitOr) and isinstance(node.left, ast.Name)
        name = getattr(node.right, "id", "").isupper()  # folder / NAME
        if not types and not name and not any(is_text(side) for side in (node.left, node.right)):
            self.replace_between(node.left, node.right, SWAPPED[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        begin = self.span(node)[0]
        self.add(begin, begin + (4 if isinstance(node.op, ast.Not) else 1), "")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts with values as they are: most are messages."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.replace(node, str(not value))
        elif isinstance(value, int | float):
            self.replace(node, repr(value + 1 if isinstance(value, int) else value * 2 or 1.0))
        elif isinstance(value, str):
            self.replace(node, repr(f"{value}_"))


def find_mutants(source: Path, patterns: list[str]) -> list[Mutant]:
    """Return all changes to the files that match a pattern."""
    files = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    chosen = [file for file in files if any(fnmatch.fnmatch(file, pattern) for pattern in patterns)]
    return [mutant for file in chosen for mutant in Finder(file, (source / file).read_bytes()).found]


def take_sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` of the mutants. A mutant's rank depends on its line alone, so the sample outlasts other edits."""
    seen: Counter[str] = Counter()

    def rank(mutant: Mutant) -> bytes:
        key = f"{seed} {mutant.file} {mutant.where} {mutant.change}"
        seen[key] += 1
        return hashlib.sha256(f"{key} {seen[key]}".encode()).digest()

    chosen = set(sorted(mutants, key=rank)[: count or None])
    return [mutant for mutant in mutants if mutant in chosen]

"""A small standard library for the task `names`."""

from pathlib import Path

VERBS = ("get", "set", "read", "write", "close")
MODULES = {"json": 3, "email": 3, "ast": 1, "copy": 1, "cmd": 1}  # modules of the real one -> number of files
SPECIAL = '''
class Box:
    @property
    def size(self):
        """The size of a box."""
        return self.content.size

    @size.setter
    def size(self, number):
        self.number = number

    def countDown(self, unit):
        """Count down."""
        def count_up(step):
            return count_up(step - 1) + unit
        return self.countDown(unit) if self._count_down else count_up(unit)

def _(): pass
'''


def write_library(folder: Path, functions: int = 24) -> Path:
    """Write a library of several modules, some of them packages. Each function is different from all others."""
    for module, files in MODULES.items():
        for number in range(files):
            path = folder / f"{module}.py" if files == 1 else folder / module / f"part{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [
                f"def {VERBS[k % len(VERBS)]}_{module}{number}{k}(item{k % 7}, other):\n"
                f"    return {VERBS[k % len(VERBS)]}able.{module}{number}field{k}(item{k % 7} + other)\n"
                for k in range(functions)
            ]
            path.write_text("\n".join(lines), encoding="utf-8")
    (folder / "copy.py").write_text((folder / "copy.py").read_text(encoding="utf-8") + SPECIAL, encoding="utf-8")
    return folder

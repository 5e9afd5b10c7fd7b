"""What the catalog holds: settings, and groups of settings."""

from typing import NamedTuple


class Setting(NamedTuple):
    """One setting of an experiment file.

    Attributes:
        key: Its dotted key, such as "delays.dropout". An asterisk stands for a name that the user chooses.
        type: The type of its value, in words.
        default: Its default as TOML; "" if there is none.
        required: Whether the file must set it.
        meaning: What it does.
        example: A value as TOML.
        concerns: The methods, executors, tasks or delay models that have it; "" if it concerns all.
    """

    key: str
    type: str
    default: str
    required: bool
    meaning: str
    example: str
    concerns: str = ""

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


class Group(NamedTuple):
    """Settings that belong together: a section, or what a section holds when it names a registry's entry.

    Attributes:
        section: The section of the file, such as "delays"; for the parts of an algorithm, "combine" and so on.
        names: The registry's entries that have these settings, such as ("cifar10", "cifar100"); () for a section.
        summary: A description in one or two sentences.
        description: The rest of the description, as Markdown.
        settings: The settings.
    """

    section: str
    names: tuple[str, ...]
    summary: str
    description: str
    settings: tuple[Setting, ...]

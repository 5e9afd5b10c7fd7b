# The public names of fadas. `__init__.py` imports them on first use.

__version__: str

"""`python -m fadas.cli`."""

from fadas.cli import main

main()

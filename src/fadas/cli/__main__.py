from fadas.cli import main

main()

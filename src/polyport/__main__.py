"""`python -m polyport`: the command line."""

from polyport.cli.main import main

main()

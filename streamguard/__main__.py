"""`python -m streamguard`."""

from .cli import main

main(prog_name="streamguard")

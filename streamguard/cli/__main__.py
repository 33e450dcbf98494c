"""`python -m streamguard.cli`."""

from . import main

main(prog_name="streamguard")

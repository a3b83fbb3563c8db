"""Lets ``python -m haloscope`` do what the command does; launched ranks start this way."""

from haloscope.cli import main

if __name__ == "__main__":
    main()

"""How numbers of things read in messages: 1 rank, 2 ranks."""

from __future__ import annotations


def counted(number: object, noun: str, several: str = "") -> str:
    """A number of things in words.

    `several`: what several are called; the noun with an s by default.
    """
    shown = str(number)
    return f"{shown} {noun if shown == '1' else several or noun + 's'}"

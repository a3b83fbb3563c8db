"""Analyses measurements that were damaged at random; run as a program, which a crash may end.

    python trace_fuzz.py FOLDER FIRST COUNT

damages the measurement in FOLDER in COUNT ways, numbered from FIRST. It says the number of each way
before it goes it, so that who started the program knows what ended it.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from haloscope.errors import InputError
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import open_measurement

MEMORY_BYTES = 6 << 30  # of addresses: an allocation by a number from a file fails
HEADER_BYTES = 64


def _words(choice: random.Random, data: bytearray) -> None:
    """Change some words: bits flipped, kinds changed, other words copied over them."""
    count = (len(data) - HEADER_BYTES) // 8
    for _ in range(choice.choice((1, 1, 2, 5, 30))):
        if count <= 0:
            return
        place = HEADER_BYTES + 8 * choice.randrange(count)
        word = int.from_bytes(data[place : place + 8], "little")
        match choice.randrange(6):
            case 0:
                word ^= 1 << choice.randrange(64)
            case 1:
                word = word & ~63 | choice.randrange(64)
            case 2:
                word = word & 0xFFFFFFFF | choice.choice((0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF)) << 32
            case 3:
                word = choice.getrandbits(64)
            case 4:
                word = choice.choice((0, (1 << 64) - 1, 1 << 63, (1 << 63) - 1))
            case 5:
                other = HEADER_BYTES + 8 * choice.randrange(count)
                word = int.from_bytes(data[other : other + 8], "little")
        data[place : place + 8] = word.to_bytes(8, "little")


def _pieces(choice: random.Random, data: bytearray) -> None:
    """Leave a piece out, say one twice, or cut the end off, not always at a word."""
    begin = choice.randrange(HEADER_BYTES, len(data) + 1)
    length = choice.choice((1, 3, 8, 16, 24, 200))
    match choice.randrange(3):
        case 0:
            del data[begin : begin + length]
        case 1:
            data[begin:begin] = data[begin : begin + length]
        case 2:
            del data[begin:]


def _header(choice: random.Random, data: bytearray) -> None:
    place = choice.randrange(HEADER_BYTES)
    data[place] ^= 1 << choice.randrange(8)


def _definitions(choice: random.Random, path: Path) -> None:
    """Change a number or a line of a definitions file."""
    lines = path.read_text().splitlines()
    place = choice.randrange(len(lines))
    wild: tuple[object, ...] = (
        -1,
        0,
        1,
        7,
        2**31 - 1,
        2**31,
        2**63,
        10**30,
        1e308,
        "x",
        None,
        [],
        [0, 0],
        {},
        True,
    )
    match choice.randrange(4):
        case 0:
            lines.pop(place)
        case 1:
            lines.insert(choice.randrange(len(lines)), lines[place])
        case 2:
            lines[place] = lines[place][: choice.randrange(len(lines[place]) + 1)]
        case 3:
            content = json.loads(lines[place])
            content[choice.choice(list(content))] = choice.choice(wild)
            lines[place] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n" * choice.randrange(2))


def damage(folder: Path, number: int) -> None:
    """Damage the measurement in a folder in the way that has this number."""
    choice = random.Random(number)
    events = sorted(folder.glob("*.events"))
    for _ in range(choice.choice((1, 1, 1, 3))):
        path = choice.choice(events)
        way = choice.randrange(12)
        if way == 0:
            _definitions(choice, choice.choice(sorted(folder.glob("*.def"))))
        elif way == 1:
            path.write_bytes(choice.choice(events).read_bytes())
        else:
            data = bytearray(path.read_bytes())
            if way == 2:
                _header(choice, data)
            elif way == 3:
                _pieces(choice, data)
            else:
                _words(choice, data)
            path.write_bytes(data)


def main() -> None:
    """Damage and analyse."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    source, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, first + count):
        print(number, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "damaged"
            shutil.copytree(source, folder)
            damage(folder, number)
            try:
                analyse(open_measurement(folder), 1 + number % 3, correct_clocks=False)
            except InputError as error:
                assert "\n" not in str(error), error
    print("done")


if __name__ == "__main__":
    main()

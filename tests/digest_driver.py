"""Runs inside one version of Haloscope for tests/digests.py: a case, or commands, into a JSON file.

Only `haloscope.load` and the command line are used, so that it works in every version.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def require_tree(tree: str) -> None:
    """Refuse to run with another Haloscope than the one of a source tree."""
    import haloscope

    place = Path(haloscope.__file__).resolve()
    if not place.is_relative_to(Path(tree).resolve() / "src"):
        raise RuntimeError(f"haloscope is {place}, not the one of {tree}")


def array_digest(array: Any) -> str:
    """SHA-256 of an array's type, shape and bytes in C order."""
    array = np.ascontiguousarray(array)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + content).hexdigest()


# In a checkpoint: a text with times of the run in it.
CHECKPOINT_TEXT = "content"


def file_digests(folder: Path) -> dict[str, str]:
    """Digests of the tables and of the data sets in the files that a run has written."""
    import h5py

    digests = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".csv":
            digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix in (".vtkhdf", ".h5"):
            with h5py.File(path) as file:

                def add(name: str, item: Any, prefix: str = path.name) -> None:
                    if isinstance(item, h5py.Dataset) and name != CHECKPOINT_TEXT:
                        digests[f"{prefix} {name}"] = array_digest(item[()])

                file.visititems(add)
    return digests


def run_case(request: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case on all ranks; digests and summary on the first rank, None on the others."""
    import haloscope

    simulation = haloscope.load(
        request["case"], settings=request["settings"], device=request["device"]
    )
    summary = simulation.run(request["steps"], out=request["out"], ceilings=False)
    if summary["ranks"] != request["ranks"]:
        raise RuntimeError(f"the run has {summary['ranks']} ranks, not {request['ranks']}")
    fields = simulation.fields
    if any(field is None for field in fields.values()):
        return None
    digests = {name: array_digest(field) for name, field in fields.items()}
    return {"fields": digests, "files": file_digests(Path(request["out"])), "summary": summary}


def run_commands(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Exit code and standard output of command lines of `haloscope`, one after the other."""
    if request.get("kernels"):
        import digest_kernels  # noqa: F401 (records all that NVRTC compiles from here on)
    from haloscope.__main__ import main

    results = []
    for number, arguments in enumerate(request["commands"], 1):
        sys.argv = ["haloscope", *arguments]
        output, code, error = io.StringIO(), 0, ""
        try:
            with contextlib.redirect_stdout(output):
                main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except Exception as defect:
            code, error = 1, f"{type(defect).__name__}: {defect}"
        results.append({"code": code, "output": output.getvalue(), "error": error})
        if number % 20 == 0:
            print(f"{number} of {len(request['commands'])} commands", file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Do what the request file asks for, with the Haloscope of the source tree that it names."""
    request = json.loads(Path(sys.argv[1]).read_text())
    require_tree(request["tree"])
    result = run_commands(request) if "commands" in request else run_case(request)
    if result is not None:
        Path(request["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()

"""Copies cases/ into the package when a wheel is built; everything else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CASES = Path(__file__).parent / "cases"


class BuildWithCases(build_py):
    """Puts the shipped cases beside the modules, where haloscope.case.toml_files looks for them."""

    def run(self) -> None:
        """Build the package; an editable installation reads cases/ of the clone."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "haloscope" / "cases"
        target.mkdir(parents=True, exist_ok=True)
        for path in CASES.glob("*.toml"):
            shutil.copy(path, target)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithCases})

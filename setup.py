"""Copies the repository's data and notebooks into the package when it is built."""

from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree

from setuptools import setup
from setuptools.command.build_py import build_py

# Scripts that make data need the repository; what a notebook imports goes with it.
LEFT_OUT = {
    "data": ignore_patterns("*.py", "__pycache__"),
    "notebooks": ignore_patterns("__pycache__", ".ipynb_checkpoints"),
}


class BuildWithFiles(build_py):
    """Builds the package with ``dietlab/files``, where ``dietlab.base.shipped`` looks first."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone has the folders themselves
            return
        files = Path(self.build_lib) / "dietlab" / "files"
        rmtree(files, ignore_errors=True)
        for folder, left_out in LEFT_OUT.items():
            copytree(folder, files / folder, ignore=left_out)


setup(cmdclass={"build_py": BuildWithFiles})

"""Tables that are built once into a folder and kept there, until their recipe changes."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "tables"


class UnavailableError(Exception):
    """The table cannot be built with this build of deltic."""


def table(name: str, build: Callable[[str, str], None], *sources: str) -> str:
    """The location of a table, which is built if it is missing, incomplete or of another recipe.

    `build` gets the name and the location. The recipe is the text of the modules `sources`.
    """
    path, done = FOLDER / name, FOLDER / f"{name}.built"
    recipe = hashlib.sha256(b"".join(Path(source).read_bytes() for source in sources)).hexdigest()
    if not done.exists() or done.read_text() != recipe:
        done.unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            build(name, str(path))
        except UnavailableError:
            shutil.rmtree(path)
            raise
        done.write_text(recipe)
    return str(path)

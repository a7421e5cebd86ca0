"""The demo, which is a script and no module of a package."""

import importlib.util
from pathlib import Path
from types import ModuleType

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def demo() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The smallest domain, taken from docs/environments.md, so that the page stays true."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "environments.md"


@pytest.fixture(scope="session")
def lamp() -> ModuleType:
    blocks = re.findall(r"```python\n(# lamp\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1, "docs/environments.md must hold exactly one block that starts with '# lamp.py'"
    module = ModuleType("lamp_of_the_docs")
    sys.modules[module.__name__] = module
    exec(compile(blocks[0], str(PAGE), "exec"), module.__dict__)
    return module

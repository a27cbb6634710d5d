"""Print a constraint for each dependency: the lowest version that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for requirement in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
    name, version = re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement).groups()
    print(f"{name}=={version}")

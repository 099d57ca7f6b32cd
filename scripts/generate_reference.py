"""Write docs/build-toml.md and docs/build-toml.schema.json from the table of keys in kernel_builder.config.schema.

Run it after changing that table: python scripts/generate_reference.py. A test fails while they differ.
"""

from __future__ import annotations

import json
from pathlib import Path

from kernel_builder.config.jsonschema import json_schema
from kernel_builder.config.reference import reference

DOCS = Path(__file__).parent.parent / "docs"


def generated() -> dict[Path, str]:
    """Every generated file with its content."""
    return {
        DOCS / "build-toml.md": reference(),
        DOCS / "build-toml.schema.json": json.dumps(json_schema(), indent=2) + "\n",
    }


def main() -> None:
    """Write what has changed."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()

"""What all tests share: hand-made records, importable as `episodes`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

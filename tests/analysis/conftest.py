"""`analysis` runs from the clone: its root is put on the path, as `python -m` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

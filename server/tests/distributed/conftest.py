import sys
from pathlib import Path

# Split models are made and run with the helpers of the model tests, here and in spawned ranks.
sys.path.insert(0, str(Path(__file__).parent.parent / "models"))

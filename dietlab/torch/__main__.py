"""``python -m dietlab.torch`` compiles the operators into this environment, so that no import compiles them:
for container images, and for home folders that cannot be written.
"""

from __future__ import annotations

from dietlab.torch.extension import keep
from dietlab.torch.operators import SOURCE

if __name__ == "__main__":
    print(keep(SOURCE))

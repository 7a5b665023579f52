#!/usr/bin/env bash
# scipy.stats in a process that keeps PyTorch out by sys.modules["torch"] = None.
#
# Guess: None in sys.modules, Python's own way to make an import fail, hides PyTorch from SciPy as if it were not
#   installed.
# Versions: scipy 1.15.3 and 1.17.1, numpy 2.4.6 and pandas 3.1.1, Python 3.11 or later.
# Behaviour: SciPy 1.17.1 looks the module up in sys.modules and asks the None for its class, so that `import
#   scipy.stats` fails, and with it what imports it late: DataFrame.corrwith(method="spearman") of pandas. SciPy
#   1.15.3 imports it.
# Seen:
#   scipy 1.15.3: 1.0
#   scipy 1.17.1: AttributeError: 'NoneType' object has no attribute 'Tensor'
# Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "skipped: the pinned wheels are for Python 3.11 or later"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/seen.py" <<'PY'
import sys

sys.modules["torch"] = None

import pandas as pd
from importlib.metadata import version

frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
try:
    said = float(frame.corrwith(frame, method="spearman")["a"])
except AttributeError as error:
    said = f"AttributeError: {error}"
print(f"scipy {version('scipy')}: {said}")
PY

"$python" -m venv "$folder/venv"
for scipy in 1.15.3 1.17.1; do
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "numpy==2.4.6" "pandas==3.1.1" "scipy==$scipy"
  "$folder/venv/bin/python" "$folder/seen.py" | tee -a "$folder/seen.txt"
done
diff "$folder/seen.txt" - <<'SEEN'
scipy 1.15.3: 1.0
scipy 1.17.1: AttributeError: 'NoneType' object has no attribute 'Tensor'
SEEN

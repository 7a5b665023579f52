#!/usr/bin/env bash
# A model that XGBoost 3.1 or later wrote, read by an earlier version.
#
# Guess: XGBoost reads models of earlier versions only, so that an earlier one refuses the file by its version.
# Versions: xgboost-cpu 3.2.0 writes; 3.0.5 and 2.1.4 read; NumPy 2.2.6, Python 3.11, x86-64.
# Behaviour: since 3.1 the stored base score is a vector in text, "[-8.455783E0]"; earlier versions read the
#   file without an error or a warning and begin every sum at 0.5 in its place. The file's "version" is not
#   looked at. Read by 3.2.0 itself, and what the earlier ones write read by 3.2.0, predictions are the same.
# Seen:
#   written by 3.2.0: base score [-8.455783E0], prediction -8.3900
#   read by 3.0.5: base score 5E-1, prediction 0.5657
#   read by 2.1.4: base score 5E-1, prediction 0.5657
# Exits 1 if an earlier version refuses the file or predicts the same.
set -euo pipefail

python=${PYTHON:-python3}
if ! "$python" -c 'import platform, sys; sys.exit(platform.machine() != "x86_64" or sys.version_info < (3, 10))'; then
  echo "skipped: the pinned wheels are for x86-64 and Python 3.10 or later"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/model.py" <<'PY'
import json
import sys

import numpy as np
import xgboost

path, way = sys.argv[1:]
x = np.random.default_rng(0).random((60, 3))
y = x[:, 0] - 9
data = xgboost.DMatrix(x, label=y)
if way == "write":
    fitted = {"base_score": float(y.mean()), "nthread": 1, "seed": 0}
    booster = xgboost.train(fitted, data, 3)
    booster.save_model(path)
else:
    booster = xgboost.Booster()
    booster.load_model(path)
score = json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"]
first = float(booster.predict(data)[0])
done = "written" if way == "write" else "read"
print(f"{done} by {xgboost.__version__}: base score {score}, prediction {first:.4f}")
right = abs(first + 8.3901) < 1e-3
sys.exit(0 if right else 3)
PY

"$python" -m venv "$folder/venv"
using() {
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "numpy==2.2.6" "scipy==1.15.3" "xgboost-cpu==$1"
}

using 3.2.0
"$folder/venv/bin/python" "$folder/model.py" "$folder/model.json" write
changed=0
for version in 3.0.5 2.1.4; do
  using "$version"
  status=0
  "$folder/venv/bin/python" "$folder/model.py" "$folder/model.json" read || status=$?
  # 3: it was read, and predicts something else.
  [ "$status" -eq 3 ] || changed=1
done
if [ "$changed" -ne 0 ]; then
  echo "changed: an earlier version refuses the model or predicts the same"
  exit 1
fi
echo "as described: earlier versions read the model without an error and begin at 0.5"

"""PyPOTS's Raindrop on the arrays in an .npz file; run by speed.py in PyPOTS's own environment.

Prints samples per second for training (one epoch, batches of 128) and prediction.
"""

import contextlib
import io
import sys
import time

import numpy as np
import torch
from pypots.classification import Raindrop

torch.set_num_threads(2)
data = np.load(sys.argv[1])
X, y = data["X"], data["y"]
model = Raindrop(
    n_steps=X.shape[1], n_features=X.shape[2], n_classes=2, n_layers=2, d_model=X.shape[2] * 4, n_heads=2,
    d_ffn=2 * X.shape[2] * 4, dropout=0.2, batch_size=128, epochs=1, verbose=False,
)  # fmt: skip
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    started = time.perf_counter()
    model.fit({"X": X, "y": y})
    trained = time.perf_counter()
    model.predict({"X": X})
    predicted = time.perf_counter()
sys.stdout.write(f"{len(X) / (trained - started)} {len(X) / (predicted - trained)}\n")

"""An imputer of PyPOTS on the arrays in an .npz file; run by imputation.py in PyPOTS's own environment.

    PYTHON pypots_imputation.py SAITS|BRITS|ImputeFormer ARRAYS.npz FILLED.npy SEED EPOCHS

The arrays are windows (window, hour, station), standardised, NaN where there is no reading: "train", "validation"
(with readings hidden, which are in "validation_truth") and "asked". Sizes are those of the papers or smaller, one
thread, the epoch that validates best is kept. Prints seconds of training and of filling, and the process's peak memory.
"""

import contextlib
import io
import json
import resource
import sys
import time

import numpy as np
import torch
from pypots.imputation import BRITS, SAITS, ImputeFormer
from pypots.optim import Adam

SIZES = {
    "SAITS": {"n_layers": 2, "d_model": 256, "n_heads": 4, "d_k": 64, "d_v": 64, "d_ffn": 128, "dropout": 0.1},
    "BRITS": {"rnn_hidden_size": 64},
    "ImputeFormer": {
        "n_layers": 3, "d_input_embed": 24, "d_learnable_embed": 80, "d_proj": 8, "d_ffn": 256, "n_temporal_heads": 4,
    },
}  # fmt: skip

torch.set_num_threads(1)
name, arrays, filled, seed, epochs = sys.argv[1:]
torch.manual_seed(int(seed))
data = np.load(arrays)
_, hours, stations = data["train"].shape
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    model = {"SAITS": SAITS, "BRITS": BRITS, "ImputeFormer": ImputeFormer}[name](
        n_steps=hours, n_features=stations, batch_size=32, epochs=int(epochs), patience=10, optimizer=Adam(lr=1e-3),
        device="cpu", verbose=False, **SIZES[name],
    )  # fmt: skip
    started = time.perf_counter()
    model.fit({"X": data["train"]}, {"X": data["validation"], "X_ori": data["validation_truth"]})
    trained = time.perf_counter()
    answer = np.asarray(model.predict({"X": data["asked"]})["imputation"])
    answered = time.perf_counter()
np.save(filled, answer)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
measured = {"training_seconds": trained - started, "answering_seconds": answered - trained, "peak_megabytes": peak}
sys.stdout.write(json.dumps({key: round(value, 1) for key, value in measured.items()}) + "\n")

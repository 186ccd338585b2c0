"""The journal of a search: a file of JSON lines that several processes share, and that a kill leaves intact.

journal.jsonl    every trial, as Optuna's journal storage writes it
.ask.lock        held while a process takes its next trial
.append.lock     held while a line is appended
.processes/NAME  locked by a running process; the system releases the lock when that process ends in any way

A trial belongs to the process that runs it. If that process ended without finishing it, the next process that asks for
a trial takes it over, with the same settings.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from raindrop.errors import MissingExtraError, OutputExistsError, RaindropError, ResumeError, first_line
from raindrop.files import NoLocksError, try_lock

if TYPE_CHECKING:  # an extra
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

JOURNAL, ASK, APPEND, PROCESSES = "journal.jsonl", ".ask.lock", ".append.lock", ".processes"
STUDY = "raindrop"  # its name in the journal
MAX_ATTEMPTS = 3  # a trial whose process dies this often is not tried again
POLL_SECONDS = 0.5


def require_optuna() -> Any:
    """The package, with its terminal messages switched off; raises if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "tune", "Searching for settings") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Journal:
    """The trials of the search in a folder, as seen by one process. Use it as a context manager."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.process = uuid.uuid4().hex
        self._own: IO[bytes] | None = None
        self.study: Study

    def __enter__(self) -> Journal:
        try:
            (self.folder / PROCESSES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RaindropError(f"{self.folder}: the search cannot be stored there ({error.strerror}).") from None
        self._own = open(self.folder / PROCESSES / self.process, "wb")
        _lock(self._own)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._own is not None:
            (self.folder / PROCESSES / self.process).unlink(missing_ok=True)
            self._own.close()
            self._own = None

    def open(self, about: Mapping[str, Any], *, lower_is_better: bool, start: Mapping[str, Any]) -> Study:
        """The search, created if there is none; `about` describes the model and data, and must not change.

        The first trial has the settings `start`, which the search tries to improve.
        """
        with self._alone():
            self.study, self._storage = _open_study(self.folder, lower_is_better)
            wanted, known = json.loads(json.dumps(dict(about))), self.study.user_attrs.get("about")
            if known is None:
                self.study.set_user_attr("about", wanted)
            elif known != wanted:
                other = next((name for name in wanted if known.get(name) != wanted[name]), "version")
                raise ResumeError(
                    f"{self.folder}: the search there was begun with another {other}, so it cannot be continued.\n"
                    "Give what it was begun with, or choose another output."
                )
            if not self.study.get_trials(deepcopy=False):
                self._queue(start, {"is_start": True})
        return self.study

    # ---------------------------------------------------------------- trials

    def next_trial(self, space: Mapping[str, Any], trials: int, seed: int) -> Trial | None:
        """The next trial of at most `trials`, assigned to this process; None if all are finished.

        Waits while the last ones run elsewhere: this process takes over the trial of a process that dies. What is drawn
        depends on the seed and the earlier trials, not on how often the search was interrupted.
        """
        import optuna

        while True:
            with self._alone():
                self._take_over()
                counted = [trial for trial in self.trials() if trial.state.name != "WAITING"]
                if sum(trial.state.is_finished() for trial in counted) >= trials or start_failure(counted) is not None:
                    return None
                if len(counted) < trials:
                    drawn = np.random.SeedSequence([seed, len(counted)]).generate_state(1)[0]
                    self.study.sampler = optuna.samplers.TPESampler(seed=int(drawn))
                    trial = self.study.ask(dict(space))
                    trial.set_user_attr("process", self.process)  # from now on its settings are complete
                    return trial
            time.sleep(POLL_SECONDS)

    def trials(self) -> list[FrozenTrial]:
        """All trials except those that were taken over by another."""
        return [each for each in self.study.get_trials(deepcopy=False) if not each.user_attrs.get("lost")]

    def give_back(self, trial: Trial) -> None:
        """Release an unfinished trial for whichever process continues the search."""
        with self._alone():
            for each in self.trials():
                if each.number == trial.number and not each.state.is_finished():
                    self._leave(each, each.user_attrs.get("attempt", 1))

    def _take_over(self) -> None:
        """Put the trials of processes that ended back into the queue."""
        for trial in self.trials():
            if trial.state.name != "RUNNING" or self._is_alive(trial.user_attrs.get("process")):
                continue
            attempt = trial.user_attrs.get("attempt", 1) + 1
            if attempt <= MAX_ATTEMPTS:
                self._leave(trial, attempt)
            else:
                self.fail(trial, f"its process ended {MAX_ATTEMPTS} times without a result, perhaps out of memory")

    def _leave(self, trial: FrozenTrial, attempt: int) -> None:
        """Queue the settings of a trial again, only once even if this is interrupted, and end it."""
        about = trial.user_attrs
        again = [each for each in self.trials() if each.user_attrs.get("instead_of") == trial.number]
        settings = trial.params if "process" in about else about.get("settings")  # else drawn again, the same
        if not again and settings is not None:
            kept = {"is_start": True} if about.get("is_start") else {}
            self._queue(settings, kept | {"instead_of": trial.number, "attempt": attempt})
        self._storage.set_trial_user_attr(trial._trial_id, "lost", True)
        self.study.tell(trial.number, state=_state("FAIL"))

    def _queue(self, settings: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Make a trial with these settings the next one."""
        self.study.enqueue_trial(dict(settings), user_attrs={**about, "settings": dict(settings)})

    def fail(self, trial: FrozenTrial | Trial, reason: str) -> None:
        """End a trial that has no result, and store the reason."""
        self._storage.set_trial_user_attr(trial._trial_id, "failure", reason)
        self.study.tell(trial.number, state=_state("FAIL"))

    def _is_alive(self, process: str | None) -> bool:
        """Whether a process is still running; without locks (Windows) only this one is."""
        if process is None or process == self.process:
            return process is not None
        path = self.folder / PROCESSES / process
        try:
            with open(path, "rb") as file:
                if not _lock(file, wait=False):
                    return True
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        return False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.folder / ASK, "wb") as file:
            _lock(file)
            yield


def start_failure(trials: list[FrozenTrial]) -> str | None:
    """Why the initial settings of a search do not work; None if they do, or were not tried yet."""
    start = next((trial for trial in trials if trial.user_attrs.get("is_start")), None)
    return None if start is None or start.state.name != "FAIL" else str(start.user_attrs.get("failure", "it failed"))


def _open_study(folder: Path, lower_is_better: bool) -> tuple[Study, Any]:
    """The study in a journal, created if there is none, and its storage."""
    optuna = require_optuna()
    path = folder / JOURNAL
    try:
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=_AppendLock(path))
        storage = optuna.storages.JournalStorage(backend)
        if STUDY not in [study.study_name for study in storage.get_all_studies()]:
            direction = "minimize" if lower_is_better else "maximize"
            optuna.create_study(storage=storage, study_name=STUDY, direction=direction)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
        study = optuna.load_study(storage=storage, study_name=STUDY, pruner=pruner)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise RaindropError(
            f"{path}: is not the journal of a search, or damaged ({first_line(error)}). Remove it, or choose another "
            "output."
        ) from None
    return study, storage


def refuse_other_folder(folder: Path) -> None:
    """Raise if a folder has files, but no search."""
    if folder.is_file():
        raise OutputExistsError(f"{folder}: this is a file; give the name of a folder.")
    if folder.is_dir() and not (folder / JOURNAL).exists():
        found = sorted(path.name for path in folder.iterdir() if path.name not in (ASK, APPEND, PROCESSES))
        if found:
            raise OutputExistsError(f"{folder}: has other files ('{found[0]}') and no search. Choose another name.")


class _AppendLock:
    """The lock that Optuna holds while it appends; it ends with the process, unlike a lock file."""

    def __init__(self, path: Path):
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = open(self.path.with_name(APPEND), "wb")  # noqa: SIM115
        _lock(self._file)
        _drop_half_line(self.path)
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()


def _drop_half_line(path: Path) -> None:
    """Remove a partial last line of a killed process; appending to it would make the journal unreadable."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


def _lock(file: IO[bytes], *, wait: bool = True) -> bool:
    """Lock an open file until it is closed; if another process has locked it, wait or return False."""
    try:
        while not try_lock(file):
            if not wait:
                return False
            time.sleep(0.01)
    except NoLocksError as error:
        raise RaindropError(
            f"{file.name}: the file system has no locks ({error.strerror}), so processes could run the same trial. "
            "Search on a local disk."
        ) from None
    return True

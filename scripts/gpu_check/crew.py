"""Cases shared out to worker processes, so that one that crashes or hangs costs itself and nothing else.

A job is a kind of check and its cases; a worker answers with one line of JSON per case, in order, and may send events
before that. Several workers share one device: most of their time is compilation. A worker that dies, or is silent for
too long, fails the case it was at and is replaced for the rest of its job. At the deadline whatever has no answer is
skipped, and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parent.parent / "gpu-check"

Result = dict[str, Any]
Case = dict[str, Any]


@dataclass(slots=True)
class Job:
    """Cases of one kind (a key of worker.JOBS), to be done in one process in this order."""

    kind: str
    cases: list[Case]


class Worker:
    """One process; `answers` gives its lines, None when it has ended."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def send(self, job: Job) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"kind": job.kind, "cases": job.cases}) + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Ends the process and all it started; returns its exit status."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


class Crew:
    """Workers until the jobs are done or the deadline (of time.monotonic) has passed."""

    def __init__(
        self,
        processes: int,
        deadline: float,
        silence_s: float,
        environment: Mapping[str, str],
        log: Path,
        report: Callable[[str, Case, Result], None],
        event: Callable[[Any], None] = lambda event: None,
    ) -> None:
        self.processes, self.deadline, self.silence_s = processes, deadline, silence_s
        self.environment, self.log, self.report, self.event = environment, log, report, event
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._stopped = False

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._jobs.put(job)
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(min(self.processes, len(jobs)))]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.05)
        finally:  # also on Ctrl-C
            with self._lock:
                self._stopped = True
                workers = list(self._workers)
            for worker in workers:
                worker.end()
            for thread in threads:
                thread.join(timeout=10)

    def _serve(self) -> None:
        worker: Worker | None = None
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            at = 0
            while at < len(job.cases):
                if self._stopped or time.monotonic() > self.deadline:
                    for case in job.cases[at:]:
                        reason = "stopped" if self._stopped else "the time for this phase was used up"
                        self._tell(job.kind, case, {"status": "skipped", "reason": reason})
                    break
                if worker is None:
                    worker = self._hire()
                    if worker is None:
                        continue
                at, worker = self._work(worker, job, at)
        if worker is not None:
            self._dismiss(worker)

    def _work(self, worker: Worker, job: Job, at: int) -> tuple[int, Worker | None]:
        """The job from case `at` on. Returns where it got to, and the worker if it still lives."""
        with contextlib.suppress(OSError):  # it has ended: said below
            worker.send(Job(job.kind, job.cases[at:]))
        while at < len(job.cases):
            wait = min(self.silence_s, self.deadline - time.monotonic())
            try:
                line = worker.answers.get(timeout=max(wait, 0.01))
            except queue.Empty:
                self._dismiss(worker)
                if time.monotonic() < self.deadline:
                    reason = f"no answer within {self.silence_s:.0f} s; the process was ended"
                    self._tell(job.kind, job.cases[at], {"status": "failed", "reason": reason})
                    at += 1
                return at, None
            if line is None:
                status = self._dismiss(worker)
                if not self._stopped:
                    how = f"signal {-status}" if status < 0 else f"exit code {status}"
                    reason = f"its process ended with {how}; see {self.log.name}"
                    self._tell(job.kind, job.cases[at], {"status": "failed", "reason": reason})
                    at += 1
                return at, None
            result = json.loads(line)
            if "event" in result:
                self.event(result["event"])
                continue
            unfit = result.pop("unfit", False)
            self._tell(job.kind, job.cases[at], result)
            at += 1
            if unfit:
                self._dismiss(worker)
                return at, None
        return at, worker

    def _hire(self) -> Worker | None:
        with self._lock:
            if self._stopped:
                return None
            worker = Worker(self.environment, self.log)
            self._workers.add(worker)
            return worker

    def _dismiss(self, worker: Worker) -> int:
        status = worker.end()
        with self._lock:
            self._workers.discard(worker)
        return status

    def _tell(self, kind: str, case: Case, result: Result) -> None:
        with self._lock:
            self.report(kind, case, result)

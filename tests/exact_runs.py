"""Runs with `trainer.exact` under every launcher, what they leave, and disturbances."""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml

from distcore.workflow import ports

WORDS = [
    "red",
    "green",
    "blue",
    "old",
    "new",
    "big",
    "small",
    "fast",
    "slow",
    "warm",
    "cold",
    "near",
    "far",
    "high",
    "low",
]
CONFIGS = {
    "embeddings and sets": """
        input_features: [{name: num, type: number}, {name: cat, type: category}, {name: cat2, type: category},
          {name: tags, type: set}]
        output_features: [{name: y, type: number}, {name: b, type: binary}]
        combiner: {type: concat, num_fc_layers: 2, output_size: 32}
        trainer: {exact: true, epochs: 2, batch_size: 100, early_stop: -1}""",
    "dropout and batch norm": """
        input_features: [{name: num, type: number, encoder: {type: dense, num_layers: 2, dropout: 0.1, norm: layer}},
          {name: num2, type: number, encoder: {type: ple, num_bins: 8, output_size: 4}},
          {name: cat, type: category, encoder: {type: dense, dropout: 0.2}}]
        output_features: [{name: c, type: category}, {name: b, type: binary}]
        combiner: {type: concat, num_fc_layers: 2, output_size: 128, dropout: 0.3, norm: batch, activation: gelu}
        trainer: {exact: true, epochs: 2, batch_size: 256, early_stop: -1,
          learning_rate_scheduler: {reduce_on_plateau: 2}}""",
    "text, accumulation and clipping": """
        input_features: [{name: txt, type: text, encoder: {type: parallel_cnn, num_filters: 8, embedding_size: 8}},
          {name: cat, type: category, encoder: {type: onehot}}]
        output_features: [{name: b, type: binary}, {name: y, type: number}]
        combiner: {type: concat, num_fc_layers: 1, output_size: 32, activation: tanh}
        trainer: {exact: true, epochs: 2, effective_batch_size: 240, gradient_accumulation_steps: 4,
          gradient_clipping: {clipglobalnorm: 0.5}, early_stop: -1, evaluate_training_set: true}""",
}
ROWS = 1501


def rows():
    """A CSV file of every kind of column, with a last batch that is short."""
    dice = random.Random(0)
    lines = ["num,num2,cat,cat2,txt,tags,y,c,b"]
    for _ in range(ROWS):
        text = dice.choices(WORDS, k=dice.randint(0, 11))
        num, cat = dice.gauss(0, 1), dice.randint(0, 39)
        y = 2 * num + cat % 5 + 0.2 * dice.gauss(0, 1)
        tags = " ".join(sorted(set(dice.choices(WORDS, k=dice.randint(0, 4)))))
        kind, bought = "abc"[int(y > 1) + int(y > 4)], int(y + text.count("red") > 2)
        values = (
            num,
            dice.lognormvariate(0, 1),
            f"k{cat}",
            f"q{cat % 7}",
            " ".join(text),
            tags,
            y,
            kind,
            bought,
        )
        lines.append(",".join(map(str, values)))
    return "\n".join(lines) + "\n"


SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL to all", "SIGKILL to a process below")
LAUNCHERS = {
    "torchrun": lambda bin, n: [f"{bin}/torchrun", "--nproc-per-node", n, "--no-python"],
    "horovodrun": lambda bin, n: [f"{bin}/horovodrun", "--gloo", "-np", n],
    "mpirun": lambda bin, n: ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", n],
}


def run_name(name):
    return name.replace(" ", "_").replace(",", "")


class Exact:
    """A place with the dataset, and runs in it. trainer: options beside those of the configs."""

    def __init__(self, place, trainer=None):
        self.place, self.trainer = place, trainer or {}
        place.write("rows.csv", rows())
        self.bin = Path(sys.executable).parent

    def config(self, name, backend):
        config = yaml.safe_load(CONFIGS[name])
        config["trainer"] |= self.trainer
        config["backend"] = {"cache_dir": str(self.place.folder / "cache"), **backend}
        return self.place.write("exact.yaml", json.dumps(config))

    def words(self, config, name):
        given = {
            "config": config,
            "dataset": self.place.folder / "rows.csv",
            "experiment_name": name,
        }
        folder = {"output_directory": self.place.folder / "results"}
        return [
            word for key, value in {**given, **folder}.items() for word in (f"--{key}", str(value))
        ]

    def begin(self, name, launcher="local", workers=1, threads=1, resume=None, more=None):
        """A training run that was started. more: variables of its environment."""
        backend = {"type": "local"}
        if launcher == "data_parallel":
            backend["trainer"] = {"type": "data_parallel", "num_workers": workers}
        if launcher in ("horovodrun", "mpirun"):
            backend = {"type": "horovod"}
        if launcher == "ray":
            backend = {"type": "ray", "num_cpus": workers, "trainer": {"num_workers": workers}}
        words = ["train", *self.words(self.config(name, backend), run_name(name))]
        words += ["--model_resume_path", str(resume)] if resume else []
        command = [str(self.bin / "distcore"), *words]
        if launcher in LAUNCHERS:
            command = [*LAUNCHERS[launcher](self.bin, str(workers)), *command]
        environment = {"OMP_NUM_THREADS": str(threads), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        if launcher == "ray":
            environment["TMPDIR"] = "/tmp"  # its sockets' paths must be short
        return self.place.program(*command, **environment, **(more or {}))

    def folder(self, name):
        return self.place.folder / "results" / f"{run_name(name)}_run"

    def digests(self, name):
        """sha256 of what a finished run leaves that is of the run alone; its folder is gone
        afterwards."""
        folder = self.folder(name)
        last = sorted(folder.glob("checkpoints/step-*"))[-1]
        files = [folder / "model" / "weights.safetensors", folder / "training_statistics.json"]
        files += sorted(last.glob("*.safetensors"))
        found = [hashlib.sha256(each.read_bytes()).hexdigest() for each in files]
        shutil.rmtree(folder)
        return found

    def trained(self, name, *how, **more):
        done = self.place.finish(self.begin(name, *how, **more))
        assert done.code == 0, done.out + done.err
        return self.digests(name)

    def disturbed(self, name, dice, places, most=4):
        """Run to the end through kills and moves; what was done, as text.

        places: (launcher, workers) to choose from."""
        told = []
        for number in range(most + 1):
            launcher, workers = dice.choice(places)
            threads, resume = dice.choice((1, 2)), self.folder(name)
            process = self.begin(
                name,
                launcher,
                workers,
                threads,
                resume if (resume / "checkpoints").exists() else None,
            )
            told.append(f"{launcher} {workers}×{threads}")
            if number < most:
                told[-1] += f" {self.disturb(process, name, dice)}"
            done = self.place.finish(process)
            if done.code == 0:
                return told
            assert number < most, f"{told}: {done.err}"
        raise AssertionError(told)

    def disturb(self, process, name, dice, signals=SIGNALS, seconds=0.7):
        """A signal up to `seconds` after the next checkpoint of this attempt, as text; none, if
        it ends before."""
        seen = self._checkpoints(name)
        while self._checkpoints(name) <= seen:
            if process.poll() is not None:
                return "ended"
            time.sleep(0.02)
        time.sleep(dice.random() * seconds)
        what = dice.choice(signals)
        with suppress(ProcessLookupError):
            if what == "SIGKILL to all":
                for each in [process.pid, *ports.below(process.pid)]:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
            elif what.startswith("SIGKILL"):
                below = ports.below(process.pid)
                os.kill(dice.choice(sorted(below)) if below else process.pid, signal.SIGKILL)
            else:
                process.send_signal(getattr(signal, what))
        return what

    def _checkpoints(self, name):
        """The newest checkpoint's step, or -1."""
        found = self.folder(name).glob("checkpoints/step-*/manifest.json")
        names = [each.parent.name for each in found if not each.parent.suffix]
        return max((int(each.partition("-")[2]) for each in names), default=-1)

"""Kill a running pipeline, start it again, and so on for many rounds; then count what was lost, double or torn.

    python tests/crash/soak.py --rounds 200
    python tests/crash/soak.py --rounds 500 --seed 7 --seconds 0.5 --spark-every 10

A round lands new input, starts the pipeline, and kills it with SIGKILL: at a named point, or at any moment. Now and
then somebody else writes to a table, a staged file is damaged, or Spark's commit log loses its end. All the while a
reader looks at the cut. Most rounds go without Spark (`driver.py`); every so many are the real command. Exits with 1
unless every number that must be zero is.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from crash_children import Child, Ended
from crash_foreign import append, optimize
from crash_harness import Eye, Lake, Torn, WentBack
from crash_model import TABLES, compare

from anabranch.core.crash import POINTS

ANY_MOMENT = "any moment"


@dataclass
class Tally:
    """What happened, and what must not."""

    seed: int
    rounds: int = 0
    with_spark: int = 0
    killed: Counter[str] = field(default_factory=Counter)  # by point
    epochs: int = 0
    rows: int = 0
    looks: int = 0
    lost: int = 0
    twice: int = 0
    torn: int = 0
    went_back: int = 0
    refused: int = 0  # starts that ended otherwise than well or killed
    left_over: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def must_be_zero(self) -> dict[str, int]:
        return {
            "rows lost": self.lost,
            "rows twice": self.twice,
            "torn cuts": self.torn,
            "cuts that went back": self.went_back,
            "starts that failed": self.refused,
            "files left over": self.left_over,
        }

    @property
    def exit_code(self) -> int:
        """
        >>> Tally(seed=1).exit_code, Tally(seed=1, twice=3).exit_code
        (0, 1)
        """
        return 1 if any(self.must_be_zero.values()) else 0

    def lines(self) -> Iterator[str]:
        """The table at the end."""
        points = {point: self.killed[point] for point in POINTS if self.killed[point]}
        facts: dict[str, object] = {
            "seed": self.seed,
            "rounds": f"{self.rounds}, {self.with_spark} of them with Spark",
            "killed": f"{self.killed.total()}, {self.killed[ANY_MOMENT]} of them at any moment",
            "crash points hit": f"{len(points)} of {len(POINTS)}: {', '.join(f'{p} {n}' for p, n in points.items())}",
            "published": f"{self.epochs} epochs, {self.rows} rows in {len(TABLES)} tables",
            "cuts read": self.looks,
            **self.must_be_zero,
        }
        yield from (f"{name:<20} {value}" for name, value in facts.items())


class Soak:
    """The rounds over one project."""

    def __init__(self, lake: Lake, tally: Tally, dice: random.Random, longest: float, *, spark: bool) -> None:
        self.lake, self.tally, self.dice, self.longest, self.spark = lake, tally, dice, longest, spark
        self.points: list[str] = []
        self.foreign = 0

    def round(self) -> None:
        """New input, a start, and a kill."""
        for _ in range(self.dice.randint(1, 3)):
            self.lake.land(events=self.dice.choice((0, 1, 5, 30)))
        if self.dice.random() < 0.5:
            point = self._next_point()
            hit = self.dice.choice((1, 1, 1, 2, 3))
            ended = self._start(f"{point}@{hit}").wait()
        else:
            point = ANY_MOMENT
            child = self._start("")
            time.sleep(self.dice.uniform(0, self.longest))
            ended = child.kill()
        # With Spark, `staging` is passed in a worker: that one dies, and the command with an error.
        if ended.killed or (self.spark and point == "staging" and ended.code == 1):
            self.tally.killed[point] += 1
        else:
            self._judge(ended)
        look(self.lake.eye, self.tally)
        self._disturb()

    def finish(self) -> None:
        """One start that nobody kills, and a second one to tidy up; then everything must be there, once."""
        for _ in range(2):
            ended = self._start("").wait()
            self._judge(ended)
        self.tally.epochs += look(self.lake.eye, self.tally) + 1
        for table in TABLES:
            found = compare(self.lake.rows(table), self.lake.model.expected(table))
            self.tally.lost += found.lost.total()
            self.tally.twice += found.twice.total()
            self.tally.rows += self.lake.model.expected(table).total()
            self.tally.lost += max(0, self.foreign - found.foreign.total())
            if found.wrong or found.foreign.total() != self.foreign:
                self.tally.said.append(f"{self.lake.folder} {table}: {found}")
        self.tally.left_over += len(self.lake.leftovers())

    def _next_point(self) -> str:
        if not self.points:
            self.points = self.dice.sample(POINTS, len(POINTS))
        return self.points.pop()

    def _start(self, crash: str) -> Child:
        return (self.lake.start_spark if self.spark else self.lake.start)(crash=crash)

    def _judge(self, ended: Ended) -> None:
        if ended.code != 0:
            self.tally.refused += 1
            self.tally.said.append(ended.text[-2000:])

    def _disturb(self) -> None:
        """What else happens in a data lake between two starts."""
        chance = self.dice.random()
        if not (self.lake.table(TABLES[-1]) / "_delta_log").exists():
            return
        if chance < 0.10:
            self.foreign += 1
            for table in TABLES:
                append(self.lake, table, str(self.foreign))
        elif chance < 0.16:
            optimize(self.lake, self.dice.choice(TABLES), "")
        elif chance < 0.24:
            for path in self.lake.leftovers()[:1]:
                file = self.lake.storage / "tables" / path
                file.write_bytes(file.read_bytes()[:-3])
        elif chance < 0.30:
            commits = [path for path in (self.lake.checkpoint / "commits").glob("*") if path.name.isdigit()]
            if commits:
                max(commits, key=lambda path: int(path.name)).unlink()


def look(eye: Eye, tally: Tally) -> int:
    """Look at the cut and count what is wrong with it."""
    try:
        eye.look()
    except Torn as error:
        tally.torn += 1
        tally.said.append(f"torn: {error}")
    except WentBack as error:
        tally.went_back += 1
        tally.said.append(f"went back: {error}")
    return eye.seen


@contextlib.contextmanager
def watched(lake: Lake, tally: Tally, every: float) -> Iterator[None]:
    """Somebody reads the cut all the time, from a thread, with a rest of so many seconds in between."""
    eye, done = Eye(lake), threading.Event()

    def loop() -> None:
        while not done.wait(every):
            look(eye, tally)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tally.looks += eye.looks + lake.eye.looks


def soak(folder: Path, *, rounds: int, seed: int, longest: float, spark_every: int) -> Tally:
    """Every round, and the reckoning at the end."""
    dice, tally = random.Random(seed), Tally(seed)
    quick = Soak(Lake(folder / "quick"), tally, dice, longest, spark=False)
    # A start with Spark takes several seconds before it reads anything.
    real = Soak(Lake(folder / "spark"), tally, dice, longest + 12, spark=True) if spark_every else None
    with contextlib.ExitStack() as stack:
        for part in (quick, real):
            if part:
                stack.callback(part.lake.end)
                stack.enter_context(watched(part.lake, tally, every=0.5 if part.spark else 0.1))
        for number in range(1, rounds + 1):
            tally.rounds += 1
            if real and number % spark_every == 0:
                tally.with_spark += 1
                real.round()
            else:
                quick.round()
            if number % 20 == 0:
                bad = ", ".join(f"{name} {count}" for name, count in tally.must_be_zero.items() if count)
                print(f"round {number}: {tally.killed.total()} killed, {bad or 'nothing wrong'}", flush=True)
        quick.finish()
        if real and tally.with_spark:
            real.finish()
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Kill and recover a pipeline, many times.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.4, help="longest time until a kill at any moment")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same faults")
    parser.add_argument("--spark-every", type=int, default=25, help="every so many rounds with Spark; 0 for none")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="anabranch-soak-"))
    print(f"seed {seed}, in {folder}", flush=True)
    tally = soak(folder, rounds=given.rounds, seed=seed, longest=given.seconds, spark_every=given.spark_every)
    for line in tally.lines():
        print(line)
    if tally.exit_code:
        print(*tally.said[:20], sep="\n")
        print(f"everything is left as it is in {folder}; again with --rounds {given.rounds} --seed {seed}")
    else:
        shutil.rmtree(folder)
    return tally.exit_code


if __name__ == "__main__":
    sys.exit(main())

"""The whole idea in one file: one search for all lengths, four small programs, and a tree that picks one.

A dense layer ``y[T, N] = x[T, K] @ w[N, K].T`` is called with any number of rows T. Tuning for each T takes
long, and one program for all T is slow for many. So: measure a few small programs once, predict all for each
T, keep four, and let a decision tree choose. The method is DietCode's (MLSys 2022), the processor is made up.
``python mini_dietcode.py`` prints what it is worth; the notebook beside it explains each line.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

LENGTHS = range(1, 129)  # each T that a call may have, in rows; up to 128, as in the paper
N = 240  # columns of y: so few that short calls leave cores idle
K = 256  # multiply-adds that each element of y takes
LANES, REGISTERS = 8, 16  # floats in a vector register, and such registers of a core, as with AVX2
CORES = 8  # tiles that are computed at the same time
HERTZ = 3e9  # cycles of a core in a second
UNITS = 2  # multiply-adds of vectors that a core starts in a cycle
FETCH = 4  # cycles for a vector of weights: 32 bytes from a cache that sends 8 a cycle
TILE = 250  # cycles to start a tile and to write it back
CALL = 1500  # cycles until all cores have begun; the cost model does not know of them
NOISE = 0.02  # share of a time that disturbances add, as a standard deviation
BATCH, ROUNDS = 4, 3  # measurements of a round, and rounds: 12 of 30 micro-kernels are measured
KEPT = 4  # micro-kernels in the portfolio: each one is code to ship


class MicroKernel(NamedTuple):
    """A program for one tile of y: ``rows`` times ``vectors`` sums stay in registers while it runs over K."""

    rows: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors * LANES}"


Runner = Callable[[MicroKernel, int], float]  # measures the seconds of a call with T rows
Known = dict[MicroKernel, float]  # f_mk of the micro-kernels that were measured, in flop/s
Tree = int | tuple[int, "Tree", "Tree"]  # a micro-kernel's number; or the last T of the first part, and both


def build_space() -> list[MicroKernel]:
    """Returns all micro-kernels whose sums fit the registers, beside a row of weights and one input."""
    pairs = [MicroKernel(r, v) for v in range(1, REGISTERS) for r in range(1, REGISTERS)]
    return [kernel for kernel in pairs if (kernel.rows + 1) * kernel.vectors + 1 <= REGISTERS]


def count_tiles(kernel: MicroKernel, T: int) -> int:
    """Returns the number of tiles that cover y; those of the last row and column may stick out."""
    return -(-T // kernel.rows) * -(-N // (kernel.vectors * LANES))  # -(-a // b) rounds a / b up


def true_seconds(kernel: MicroKernel, T: int) -> float:
    """Returns the time of a call on a processor that is made up."""
    # A step over K waits for the slower of its multiply-adds (an odd one leaves a unit idle) and weights.
    step = max(-(-kernel.rows * kernel.vectors // UNITS), FETCH * kernel.vectors)
    waves = -(-count_tiles(kernel, T) // CORES)  # the last one takes as long as a full one
    zeros = -T % kernel.rows * K / LANES  # cycles to fill rows that stick out; the model ignores them
    return (CALL + zeros + waves * (K * step + TILE)) / HERTZ


def make_runner(seed: int = 0) -> Runner:
    """Returns what measures on that processor, with noise, which only ever adds."""
    random = np.random.default_rng(seed)
    return lambda kernel, T: true_seconds(kernel, T) * (1 + NOISE * abs(random.normal()))


def f_adapt(kernel: MicroKernel, T: int) -> float:
    """Returns the share of the processor that does useful work: without padding, and without idle cores."""
    tiles = count_tiles(kernel, T)
    f_pad = T * N / (tiles * kernel.rows * kernel.vectors * LANES)
    return f_pad * tiles / (CORES * -(-tiles // CORES))  # the second factor is f_occ: of full waves


def measure(runner: Runner, kernel: MicroKernel) -> float:
    """Returns f_mk, a micro-kernel's own flop/s on one core, from one call where it wastes least."""
    T = max(LENGTHS, key=lambda T: (round(f_adapt(kernel, T), 6), T))  # of equals the longest
    seconds = runner(kernel, T)
    if not 0 < seconds < np.inf:  # NaN is neither above nor below
        raise ValueError(f"a runner returns positive, finite seconds; got {seconds} for {kernel} at T = {T}")
    return 2.0 * T * N * K / (seconds * CORES * f_adapt(kernel, T))


def learn(kernels: Sequence[MicroKernel], known: Known) -> list[float]:
    """Returns f_mk of each micro-kernel: as measured, else a power of its rows times one of its vectors."""
    features = np.log([(np.e, *kernel) for kernel in (*known, *kernels)])  # log(e) = 1 is for the constant
    powers = np.linalg.lstsq(features[: len(known)], np.log([*known.values()]), rcond=None)[0]
    guessed = np.exp(features[len(known) :] @ powers).tolist()
    return [known.get(kernel, guess) for kernel, guess in zip(kernels, guessed, strict=True)]


def predict(kernels: Sequence[MicroKernel], known: Known) -> np.ndarray:
    """Returns seconds [micro-kernels, lengths]: operations over f_mk times f_adapt, nothing measured."""
    adapt = np.array([[f_adapt(kernel, T) for T in LENGTHS] for kernel in kernels])
    return np.array(2.0 * np.array(LENGTHS) * N * K / (CORES * adapt * np.c_[learn(kernels, known)]))


def pick(times: np.ndarray, count: int, best: np.ndarray | float = np.inf) -> list[int]:
    """Returns numbers of rows, greedily: each helps most where those before it, and best, are slow."""
    picks: list[int] = []
    for _ in range(count):
        # A mean of logarithms counts ratios. Where no row helps, a thousandth of its own mean decides.
        after = np.log(np.minimum(best, times)).mean(axis=1) + 1e-3 * np.log(times).mean(axis=1)
        after[picks] = np.inf
        picks.append(int(after.argmin()))
        best = np.minimum(best, times[picks[-1]])
    return picks


def tune(runner: Runner, space: Sequence[MicroKernel], seed: int = 0) -> Known:
    """Returns what one search for all lengths measures: a few at random, then what promises most."""
    first = np.random.default_rng(seed).choice(len(space), BATCH, replace=False)
    known = {space[i]: measure(runner, space[i]) for i in first}
    for _ in range(ROUNDS - 1):
        left, best = [k for k in space if k not in known], predict([*known], known).min(axis=0)
        known |= {left[i]: measure(runner, left[i]) for i in pick(predict(left, known), BATCH, best)}
    return known


def train_dispatcher(times: np.ndarray) -> Tree:
    """Returns a tree that gives each length the fastest row of these seconds [portfolio, lengths]."""
    fastest = times.argmin(axis=0)
    ends = np.flatnonzero(np.diff(fastest, append=-1))  # where the fastest is not that of the next length
    return halve([(LENGTHS[i], int(fastest[i])) for i in ends])


def halve(parts: Sequence[tuple[int, int]]) -> Tree:
    """Returns the balanced tree over parts of the lengths: each its last T and a micro-kernel's number."""
    half = len(parts) // 2
    return (parts[half - 1][0], halve(parts[:half]), halve(parts[half:])) if half else parts[0][1]


def dispatch(tree: Tree, T: int) -> int:
    """Returns the number of the micro-kernel for T rows: all that a call does to choose."""
    while not isinstance(tree, int):
        tree = tree[2] if tree[0] < T else tree[1]
    return tree


def main() -> None:
    """Prints what the tree chooses, judged by the true times, which no search sees."""
    known = tune(make_runner(), space := build_space())
    portfolio = [[*known][i] for i in pick(predict([*known], known), KEPT)]
    tree = train_dispatcher(predict(portfolio, known))
    truth = np.array([[true_seconds(kernel, T) for T in LENGTHS] for kernel in space])
    ours = np.array([true_seconds(portfolio[dispatch(tree, T)], T) for T in LENGTHS])
    over, (alone,) = ours / truth.min(axis=0), pick(truth, 1)
    print("  T  micro-kernel  time (us)  over best possible")
    for T in (1, 5, 12, 24, 31, 43, 64, 81, 100, 128):
        print(f"{T:3}  {portfolio[dispatch(tree, T)]!s:>12}  {1e6 * ours[T - 1]:9.2f}  {over[T - 1]:18.3f}")
    print(f"mean regret: {100 * (over - 1).mean():.2f} %")
    print(f"speedup over {space[alone]} alone: {np.exp(np.log(truth[alone] / ours).mean()):.3f}x on average")
    print(f"measurements: {len(known)}; pairs of a micro-kernel and a length: {truth.size}")


if __name__ == "__main__":
    main()

"""Random schedules: whatever order, chunks and preemptions come, each sequence gets its own ids."""

import random

import pytest
from headrace.engine import Outcome, RowStatus
from tiny_model import BLOCK, VOCAB, Driver, sequence

SLOTS, BLOCKS, BUDGET = 4, 40, 12
NEW_TOKENS = 9
WAYS = [
    {},
    {"do_sample": True, "temperature": 1.5, "seed": 4},
    {"do_sample": True, "top_p": 0.8, "seed": 5, "frequency_penalty": 1.0},
    {"repetition_penalty": 1.6, "presence_penalty": 0.5},
    {"do_sample": True, "top_k": 7, "min_p": 0.05, "seed": 2**63 + 1},
]


class Scheduled:
    """A sequence as a router would keep it."""

    def __init__(self, number):
        self.prompt = [(5 * number + 3 * k) % VOCAB for k in range(1 + (7 * number) % 19)]
        self.how = WAYS[number % len(WAYS)]
        self.output = []
        self.slot = None
        self.blocks = []
        self.computed = 0

    @property
    def ids(self):
        return self.prompt + self.output


def alone(number):
    driver = Driver()
    it = Scheduled(number)
    first = driver.step([(0, len(it.prompt), True)], [sequence(0, it.prompt, range(12), **it.how)])
    return [int(first.ids[0]), *driver.decode([0], NEW_TOKENS - 1)[0]]


def run(seed, count):
    rng = random.Random(seed)
    driver = Driver(num_blocks=BLOCKS, max_sequences=SLOTS, max_batch_tokens=BUDGET)
    waiting = [Scheduled(number) for number in range(count)]
    everyone = list(waiting)
    running, free = [], list(range(BLOCKS))
    finished, preemptions = [], 0
    while waiting or running:
        if running and rng.random() < 0.15:
            victim = running.pop(rng.randrange(len(running)))
            finished.append(victim.slot)
            free += victim.blocks
            victim.slot, victim.blocks, victim.computed = None, [], 0
            waiting.insert(rng.randrange(len(waiting) + 1), victim)
            preemptions += 1
        new, appends, rows, batch, left = [], [], [], [], BUDGET
        used = {it.slot for it in running}
        if waiting and len(running) < SLOTS and rng.random() < 0.7:
            it = waiting.pop(0)
            it.slot = rng.choice([slot for slot in range(SLOTS) if slot not in used])
            running.append(it)
            new.append(sequence(it.slot, it.ids, [], prompt_length=len(it.prompt), **it.how))
        rng.shuffle(running)
        for it in running:
            remaining = len(it.ids) - it.computed
            tokens = min(left, remaining, rng.randint(1, 8))
            need = -(-(it.computed + tokens) // BLOCK) - len(it.blocks)
            if tokens < 1 or need > len(free):
                continue
            if need > 0:
                taken = [free.pop(rng.randrange(len(free))) for _ in range(need)]
                it.blocks += taken
                appends.append((it.slot, taken))
            rows.append((it.slot, tokens, tokens == remaining))
            batch.append(it)
            left -= tokens
        outcome = driver.step(rows, new, finished, appends)
        finished = []
        assert outcome.outcome is Outcome.OK
        for place, (it, (_, tokens, samples)) in enumerate(zip(batch, rows, strict=True)):
            assert outcome.statuses[place] == RowStatus.OK
            it.computed += tokens
            if samples:
                it.output.append(int(outcome.ids[place]))
                if len(it.output) == NEW_TOKENS:
                    running.remove(it)
                    finished.append(it.slot)
                    free += it.blocks
    assert sorted(free) == list(range(BLOCKS))
    return [it.output for it in everyone], preemptions


@pytest.fixture(scope="module")
def expected():
    """What each sequence gives alone."""
    return [alone(number) for number in range(10)]


def test_alone_is_the_dense_oracle_where_greedy(expected):
    driver = Driver()
    for number in (0, 5):
        prompt = Scheduled(number).prompt
        assert expected[number] == driver.model.greedy(prompt, NEW_TOKENS)


@pytest.mark.parametrize("seed", range(6))
def test_every_schedule_gives_the_same_ids(expected, seed):
    outputs, preemptions = run(seed, len(expected))
    assert preemptions > 0
    assert outputs == expected

"""Sheets: keys are right, published answers are not, and sheets differ.

What a sheet asks is drawn with its key. Here the key is found again in another
way, for twenty sheets of each exercise.
"""

import json
import re
from collections import Counter
from itertools import pairwise, product

import pytest
from assignment.chapter import exercises_of
from assignment.seeded import with_numbers

from dpbook.assignment.asked import passes
from dpbook.assignment.grading import refusal
from dpbook.assignment.sheets import ASKED, DRAWN, asked, check_of
from dpbook.common.checks import all_checks
from dpbook.exercises.verdict import why_not
from tests.repository import ROOT

SEEDS = range(20)
EXERCISES = {
    exercise.name: exercise
    for path in sorted((ROOT / "book").glob("*.ipynb"))
    for exercise in exercises_of(path)
}


def solution(name):
    names = {}
    exercise = EXERCISES[name]
    exec(f"{exercise.setup}\n{exercise.stub}\n{exercise.solution}", names)
    return names[name]


def stub(name):
    names = {}
    exec(f"{EXERCISES[name].setup}\n{EXERCISES[name].stub}", names)
    return names[name]


def test_twenty_two_exercises_have_numbers_of_a_sheet():
    assert not set(ASKED) & set(DRAWN)
    assert set(ASKED) | set(DRAWN) < set(EXERCISES)
    assert len(ASKED) == 6
    assert len(DRAWN) == 16


@pytest.mark.parametrize("name", ASKED)
def test_keys_pass_and_the_published_answer_and_the_stub_do_not(name):
    for seed in SEEDS:
        for key in asked(name, seed).keys:
            assert refusal(name, lambda key=key: key, seed) is None
        assert refusal(name, solution(name), seed) is not None
        assert refusal(name, stub(name), seed) is not None


@pytest.mark.parametrize("name", ASKED)
def test_the_text_has_the_numbers_and_the_solution_the_key(name):
    for seed in SEEDS:
        sheet = with_numbers(EXERCISES[name], seed)
        assert sheet.text != EXERCISES[name].text
        names = {}
        exec(sheet.solution, names)
        assert refusal(name, names[name], seed) is None


@pytest.mark.parametrize("name", ASKED)
def test_the_text_of_the_book_gives_the_books_answer(name):
    """What is replaced is all that a sheet changes: the book's own numbers."""
    assert refusal(name, solution(name)) is None
    assert with_numbers(EXERCISES[name], None) == EXERCISES[name]


# ------------------------------------------- keys, found again from the text


def numbers(text, pattern):
    (found,) = re.findall(pattern, re.sub(r"\s+", " ", text))
    return found


def test_cuts_by_brute_force():
    for seed in SEEDS:
        text = with_numbers(EXERCISES["cut_buckets"], seed).text
        listed = numbers(text, r"they have ([\d, and]+) MB")
        sizes = [int(n) for n in re.findall(r"\d+", listed)]
        start, more = map(float, numbers(
            text, r"takes ([\d.]+) ms, and another ([\d.]+) ms"))  # fmt: skip
        most_ms = float(numbers(text, r"within ([\d.]+) ms of"))
        most_mb = int(numbers(text, r"more than (\d+) MB"))
        right = []
        for borders in product((0, 1), repeat=9):
            ends = [i + 1 for i in range(9) if borders[i]] + [10]
            done, fits = 0.0, True
            for begin, end in pairwise([0, *ends]):
                size = sum(sizes[begin:end])
                done = max(done, end) + start + more * size
                fits &= size <= most_mb
            if fits and done <= most_ms + 1e-9:
                right.append([b - a for a, b in pairwise([0, *ends])])
        assert sorted(right) == sorted(asked("cut_buckets", seed).keys)


def test_forms_by_brute_force():
    for seed in SEEDS:
        text = with_numbers(EXERCISES["form_and_devices"], seed).text
        billions = numbers(text, r"\$(?:(\d) \\cdot )?10\^9\$")
        size = int(billions or 1)
        kept, sent = map(int, numbers(text, r"keep (\d+) GB.*send (\d+) GB"))
        right = []
        for k in range(1, 17):
            held = [16, 8 + 8 / k, 4 + 12 / k, 16 / k]
            for form in range(4):
                sends = (12 if form == 3 else 8) * (k - 1) / k
                if held[form] * size <= kept and sends * size <= sent:
                    right.append((form, k))
        assert sorted(right) == sorted(asked("form_and_devices", seed).keys)


def lines_of(text, begin):
    return [line.split() for line in text.splitlines()
            if re.match(begin, line)]  # fmt: skip


def test_charts_are_read_again_from_their_text():
    for seed in SEEDS:
        text = with_numbers(EXERCISES["read_chart"], seed).text
        rows = lines_of(text, r"    [\d.]")
        start = {a: t for row in rows for t, a in enumerate(row) if a != "."}
        late = []
        for r, row in enumerate(rows):
            previous = -1
            for a, tick in ((a, t) for t, a in enumerate(row) if a != "."):
                m = a[2:]
                below, above = f"{r - 1}F{m}", f"{r + 1}B{m}"
                needs = [below if a[1] == "F" else above]
                ready = [start[n] for n in needs if n in start]
                late += [a] if tick > 1 + max([previous, *ready]) else []
                previous = tick
        kept = most = 0
        for a in rows[0]:
            kept += ("F" in a) - ("B" in a)
            most = max(most, kept)
        dots = sum(row.count(".") for row in rows)
        total = sum(map(len, rows))
        assert len({len(row) for row in rows}) == 1
        (key,) = asked("read_chart", seed).keys
        assert key == (most, dots / total, *late)


def test_backwards_are_read_again_from_their_text():
    for seed in SEEDS:
        text = with_numbers(EXERCISES["read_backward"], seed).text
        rows = {r[0]: r[1:] for r in lines_of(text, r"    [cgs]")}

        def places(row, name, rows=rows):
            return [t for t, n in enumerate(rows[row]) if n == name]

        computed = {b: places("computes", f"B{b}") for b in range(4)}
        gathered = {b: places("gathers", f"G{b}") for b in range(3)}
        scattered = {b: places("scatters", f"S{b}") for b in range(4)}
        whole = Counter()
        for b in range(4):
            begin = gathered[b][0] if b < 3 else 0
            whole.update(range(begin, computed[b][-1] + 1))
            whole.update(range(computed[b][0], scattered[b][-1] + 1))
        # A gather could start with the work of the block above.
        late = [b for b in (2, 1, 0) if gathered[b][0] > computed[b + 1][0]]
        assert len(late) == 1
        work, scatter = len(computed[3]), len(scattered[3])
        # Without waiting, all work ends after four blocks.
        end = 0
        for b in range(4):
            end = max(end, (b + 1) * work) + scatter
        sooner = len(rows["scatters"]) - end
        (key,) = asked("read_backward", seed).keys
        assert key == (late[0], max(whole.values()), sooner)


def test_orders_of_gathers_by_search():
    """No order that fits is faster, by a search over what to issue next."""
    for seed in SEEDS:
        text = with_numbers(EXERCISES["gathering_order"], seed).text
        listed = numbers(text, r"Six blocks have ([\d, and]+) MB")
        sizes = [int(n) for n in re.findall(r"\d+", listed)]
        now, most = map(float, numbers(
            text, r"block ahead and takes ([\d.]+) ms, and at most (\d+) MB",
        ))  # fmt: skip
        least = float(numbers(text, r"so that forward takes ([\d.]+) ms"))
        assert fastest(sizes, most, 0, 0, 0.0, 0.0, {}) == least < now


def fastest(sizes, most, gathered, computed, sent, worked, arrived):
    """Return the least ms: gather another block now, or compute the next."""
    if computed == 6:
        return worked
    found = []
    if gathered < 6 and sum(sizes[computed : gathered + 1]) <= most:
        done = max(sent, worked) + sizes[gathered] / 20
        more = {**arrived, gathered: done}
        found.append(
            fastest(sizes, most, gathered + 1, computed, done, worked, more)
        )
    if gathered > computed:
        done = max(worked, arrived[computed]) + sizes[computed] / 10
        found.append(
            fastest(sizes, most, gathered, computed + 1, sent, done, arrived)
        )
    return min(found)


def test_designs_by_trying_all():
    pairs = product(("data", "network", "layer"), (2, 4, 8))
    answers = [list(answer) for answer in product(pairs, repeat=3)]
    for seed in SEEDS:
        found = asked("three_designs", seed)
        right = [a for a in answers if passes(found.check, a)]
        assert right == found.keys


# ------------------------------------------------------ programs


@pytest.mark.parametrize("name", DRAWN)
def test_a_program_passes_on_every_sheet(name):
    """The reference of the check and the book's solution agree."""
    for seed in SEEDS:
        assert refusal(name, solution(name), seed) is None
        assert refusal(name, stub(name), seed) is not None


def key_of(arguments):
    return json.dumps(arguments, default=sorted)


@pytest.mark.parametrize("name", DRAWN)
def test_an_answer_that_knows_the_cases_of_the_book_is_refused(name):
    known = {}

    def noting(*arguments):
        known[key_of(arguments)] = solve(*arguments)
        return known[key_of(arguments)]

    def by_heart(*arguments):
        return known[key_of(arguments)]

    solve = solution(name)
    check = all_checks()[name]
    assert why_not(check, noting) is None
    assert why_not(check, by_heart) is None
    for seed in SEEDS:
        assert "KeyError" in why_not(check_of(name, seed), by_heart)


# ------------------------------------------------------ equal sheets


def equal_pairs(values):
    return sum(n * (n - 1) // 2 for n in Counter(values).values())


def test_how_often_two_sheets_have_the_same_answer():
    """Of 190 pairs: book/teaching.md has these numbers, and says why."""
    same = {
        name: (
            equal_pairs(repr(asked(name, seed).keys) for seed in SEEDS),
            equal_pairs(repr(asked(name, seed).phrases) for seed in SEEDS),
        )
        for name in ASKED
    }
    page = (ROOT / "book/teaching.md").read_text("utf-8")
    for name, (answers, questions) in same.items():
        assert f"| `{name}` | {answers} | {questions} |" in page, same


def test_the_page_names_the_exercises_that_a_sheet_changes():
    page = (ROOT / "book/teaching.md").read_text("utf-8")
    sentences = re.sub(r"\s+", " ", page)
    programs = sorted(DRAWN)
    listed = ", ".join(f"`{name}`" for name in programs[:-1])
    assert f"{listed} and `{programs[-1]}`" in sentences


def test_no_two_sheets_have_the_same_answers_to_all_exercises():
    sheets = {
        tuple(repr(asked(name, seed).keys) for name in ASKED) for seed in SEEDS
    }
    assert len(sheets) == len(SEEDS)

"""The order of tests follows from a seed, or from how long they take."""

import re

import nbformat
import pytest

pytest_plugins = ["pytester"]

FILES = ("one", "two", "three")
TESTS = "\n".join(f"def test_{i}(): pass" for i in range(8))


@pytest.fixture
def collect(pytester, run_tests):
    """Return the names of the tests of three files, in order."""
    pytester.makepyfile(**{f"test_{name}": TESTS for name in FILES})

    def collect(*words):
        found = run_tests("order", "--collect-only", "-q", *words)
        assert found.ret == 0
        return [line for line in found.stdout.lines if "::" in line]

    return collect


def file_of(name):
    return name.split("::")[0]


def files(names):
    return list(dict.fromkeys(map(file_of, names)))


def test_a_seed_shuffles_files_and_tests(collect):
    one, again, other = (collect(f"--shuffle={n}") for n in (12345, 12345, 6))
    assert one == again != other
    assert sorted(one) == sorted(other) == sorted(collect())
    orders = [collect(), one, other]
    assert len({tuple(files(names)) for names in orders}) > 1
    for name in FILES:
        within = [
            tuple(n for n in names if file_of(n) == f"test_{name}.py")
            for names in orders
        ]
        assert len(set(within)) == 3
        # A file stays whole: a worker takes one at a time.
        for names, own in zip(orders, within):
            start = names.index(own[0])
            assert tuple(names[start : start + 8]) == own


def test_what_is_left_out_does_not_change_the_order_of_the_others(collect):
    names = collect("--shuffle=3")
    fewer = collect("--shuffle=3", "-k", "test_1 or test_4 or test_7")
    assert fewer == [name for name in names if name[-1] in "147"]
    two = collect("--shuffle=3", "test_two.py", "test_one.py")
    assert two == [name for name in names if "three" not in name]


def test_the_cells_of_a_notebook_keep_their_order(collect, pytester):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(str(i)) for i in range(30)]
    nbformat.write(notebook, pytester.path / "chapter.ipynb")
    places = set()
    for seed in "12345":
        names = collect(f"--shuffle={seed}", "--nbval", ".")
        places.add(names.index("chapter.ipynb::Cell 0"))
        assert [name for name in names if "Cell" in name] == [
            f"chapter.ipynb::Cell {i}" for i in range(30)
        ]
    assert len(places) > 1


def test_tests_of_one_fixture_stay_together(pytester, run_tests):
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module", params="abcd")
        def letter(request):
            print("made", request.param)
            return request.param

        @pytest.mark.parametrize("number", range(10))
        def test_it(number, letter):
            pass
        """
    )
    found = run_tests("order", "--shuffle=5", "-s").stdout.str()
    assert sorted(re.findall("made (.)", found)) == list("abcd")


def test_without_a_seed_what_takes_long_begins(pytester, run_tests):
    pytester.makeini("[pytest]\nmarkers = slow")
    slow = "import pytest\n@pytest.mark.slow\ndef test(): pass"
    pytester.makepyfile(
        test_a="def test(): pass", test_b=TESTS, test_c=slow + "\n" + TESTS
    )
    found = run_tests("order", "--collect-only", "-q").stdout.lines
    names = [line for line in found if "::" in line]
    assert files(names) == ["test_c.py", "test_b.py", "test_a.py"]
    assert not any("order: shuffled" in line for line in found)

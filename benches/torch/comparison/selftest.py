"""Tests of the benchmark itself. None needs a GPU."""

from __future__ import annotations

import json
import tempfile
import unittest
import zipfile
from dataclasses import asdict
from pathlib import Path

from . import picture
from .allocators import ALLOCATORS
from .cases import chosen
from .devices import DryDevice
from .measure import Options, measure
from .processes import workers
from .program import ALLOCATE, FREE, STEP, USE, draw, workloads
from .random import Random
from .records import Record, Soak, append, read, record_from
from .sleepers import KINDS
from .sleeping import MIB, Slept, figures, slept_from
from .sleeping import draw as draw_sleeps
from .sleeping import markdown as table_of_sleeps
from .summary import compare_results, summarise
from .table import markdown


def _record(allocator: str, reserved: int, **values: object) -> Record:
    record = Record("one", allocator, 0, ok=True, reserved_bytes=reserved << 20, digest="d")
    record.peak_allocated_bytes = 40 << 20
    record.capture_ns, record.replay_ns = [2_000_000, 1_000_000, 9_000_000], [5_000]
    record.yardstick_ns = [500.0, 510.0]
    for name, value in values.items():
        setattr(record, name, value)
    return record


class Programs(unittest.TestCase):
    """What is captured."""

    def test_random_numbers_are_the_published_ones(self) -> None:
        random = Random(1_234_567)
        self.assertEqual(random.next(), 6_457_827_717_110_365_317)
        self.assertEqual(random.next(), 3_203_168_211_198_807_973)

    def test_there_are_24_programs_and_each_is_that_of_the_sweep(self) -> None:
        self.assertEqual(len(workloads()), 24)
        for workload in workloads():
            program = draw(workload)
            self.assertEqual(program.kernels, workload.steps + 1 + program.blocks)
        # Nodes and blocks of `regraph-lab sweep --json`.
        first, sixth = draw(workloads()[0]), draw(workloads()[5])
        self.assertEqual((first.kernels, first.blocks), (1_108, 107))
        self.assertEqual((sixth.kernels, sixth.blocks), (11_005, 1_004))

    def test_a_seed_gives_one_program(self) -> None:
        self.assertEqual(draw(workloads()[0]).digest(), draw(workloads()[0]).digest())
        self.assertNotEqual(draw(workloads()[0]).digest(), draw(workloads()[1]).digest())

    def test_nothing_reads_a_block_that_is_free_or_not_recorded(self) -> None:
        program = draw(workloads()[16])
        live: dict[int, set[int]] = {}
        reads = 0
        for kind, stream, other in program.operations:
            if kind == FREE:
                del live[other]
            elif kind == STEP and other >= 0:
                self.assertIn(stream, live[other])
                reads += 1
            elif kind in (ALLOCATE, USE):
                live.setdefault(other, set()).add(stream)
        self.assertGreater(reads, 200)


class Cases(unittest.TestCase):
    """Every case's code, in small, on the processor."""

    def test_every_case_runs_and_repeats_itself(self) -> None:
        # Of the sweep and of the batches a few stand for all.
        names = [
            *chosen(["models"]),
            *(f"batches-{streams}s-descending" for streams in (1, 2)),
            *("sweep-2s-1000-a0.1-f0.1-j0.1", "sweep-8s-1000-a0.3-f0.1-j0.3"),
        ]
        for name in names:
            with self.subTest(name):
                record = Record(name, "default", 0)
                case = chosen([name], quick=True, dry=True)[name]()
                options = Options(captures=1, soak=20, replays=False)
                measure(case, DryDevice(), options, record)
                self.assertTrue(record.ok)
                self.assertEqual(len(record.digest), 64)
                self.assertIn(record.correct, (None, True))
                self.assertNotEqual(record.soak.steady, False)
                self.assertEqual(len(record.soak.digests), len(record.soak.after))
                if name.endswith("training"):
                    self.assertNotEqual(record.soak.digests[-1], record.digest)

    def test_a_process_answers_also_where_its_case_fails(self) -> None:
        request = {
            "case": "batches-1s-alone",
            "allocator": "default",
            "repeat": 0,
            "dry": True,
            "quick": True,
        }
        for fresh in (False, True):
            with (
                tempfile.TemporaryDirectory() as directory,
                workers(Path(directory), fresh, 60.0) as forked,
            ):
                right = forked.run(ALLOCATORS["default"], request)
                self.assertTrue(right.ok)
                self.assertEqual(len(right.yardstick_ns), 2)
                wrong = forked.run(ALLOCATORS["default"], {**request, "case": "none"})
                self.assertFalse(wrong.ok)
                self.assertIn("KeyError", wrong.error)


class Results(unittest.TestCase):
    """What is made of the figures."""

    def test_a_record_comes_back_as_it_was_written(self) -> None:
        record = _record("regraph", 5, soak=Soak(10, [5], ["x"], True))
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "records.jsonl"
            append(path, record)
            with path.open("a") as file:
                file.write('{"cut of')
            self.assertEqual([asdict(one) for one in read([path])], [asdict(record)])
        with self.assertRaises(ValueError):
            record_from({"case": "one", "what": 1})

    def test_of_times_the_least_run_counts_that_the_yardstick_vouches_for(self) -> None:
        slow = _record("regraph", 40, capture_ns=[8_000_000], calls={"ns": 9.0})
        quick = _record("regraph", 40, capture_ns=[3_000_000], calls={"ns": 7.0})
        # Quicker still, but nothing says on what machine, or one that was busy part of the time.
        busy = _record("regraph", 40, capture_ns=[1_000_000], yardstick_ns=[500.0, 700.0])
        unknown = _record("regraph", 40, capture_ns=[1_000_000], yardstick_ns=[])
        [row] = summarise([_record("default", 100), slow, busy, quick, unknown])
        self.assertEqual(row.ratio("capture", "regraph"), 1.5)
        self.assertEqual(row.calls["regraph"], {"ns": 7.0})
        self.assertEqual((row.runs["regraph"], row.rejected["regraph"]), (4, 2))
        text = markdown([row], {})
        self.assertIn("| one | 500 to 510 | 500 to 700, 2 of 4 runs rejected |", text)
        [row] = summarise([_record("default", 100), busy])
        self.assertIsNone(row.ratio("capture", "regraph"))
        self.assertEqual(row.ratio("reserved", "regraph"), 0.4)
        self.assertIn("| one | 2 | too noisy |", markdown([row], {}))

    def test_ratios_are_to_pytorch(self) -> None:
        [row] = summarise([_record("default", 100), _record("regraph", 40)])
        self.assertEqual(row.ratio("reserved", "regraph"), 0.4)
        self.assertEqual(row.figures["default"]["capture"], 2.0)
        self.assertIsNone(row.ratio("reserved", "reuse"))

    def test_results_are_compared_over_allocators_repeats_and_replays(self) -> None:
        one, other = _record("default", 1), _record("regraph", 1)
        self.assertEqual(compare_results([one, other]), "the same")
        different = _record("regraph", 1, digest="e")
        self.assertEqual(compare_results([one, different]), "DIFFERENT: regraph")
        again = _record("default", 1, digest="f")
        self.assertIn("not comparable", compare_results([one, again, other]))
        self.assertEqual(compare_results([one, _record("regraph", 1, correct=False)]),
                         "WRONG: regraph")
        soaked = _record("default", 1, soak=Soak(100, [50, 100], ["x", "y"]))
        late = _record("regraph", 1, soak=Soak(100, [50, 100], ["x", "z"]))
        self.assertIn("after 100 replays", compare_results([soaked, late]))
        unsteady = _record("regraph", 1, soak=Soak(100, [50], ["x"], False))
        self.assertIn("from replay to replay", compare_results([one, unsteady]))

    def test_a_table_has_every_case_its_ratios_and_its_failures(self) -> None:
        failed = Record("two", "regraph", 0, error="RuntimeError: no | more")
        calls = _record("regraph", 40, calls={"ns per alloc": 120.4})
        rows = summarise([_record("default", 100), calls, failed])
        text = markdown(rows, {"gpu": "none"})
        self.assertIn("| one | 100 | 40.0 (0.40) |", text)
        self.assertIn("no \\| more", text)
        self.assertIn("ns per alloc", text)
        json.dumps([asdict(row) for row in rows])

    def test_all_batch_sizes_are_compared_to_the_largest_alone(self) -> None:
        records = [_record("default", 100), _record("default", 125), _record("regraph", 60)]
        for record, order in zip(records, ("alone", "ascending", "ascending"), strict=True):
            record.case = f"batches-2s-{order}"
        text = markdown(summarise(records), {})
        self.assertIn("| batches-2s-ascending | 1.250 |  |", text)

    def test_a_picture_is_written_where_matplotlib_is(self) -> None:
        rows = summarise([_record("default", 100), _record("reuse", 60), _record("regraph", 40)])
        with tempfile.TemporaryDirectory() as directory:
            paths = [Path(directory) / "a.svg", Path(directory) / "a.png"]
            try:
                import matplotlib  # noqa: F401
            except ImportError:
                self.assertFalse(picture.draw(rows, paths))
                return
            self.assertTrue(picture.draw(rows, paths))
            self.assertTrue(all(path.stat().st_size > 1_000 for path in paths))


def _slept(allocator: str, round: int, **values: object) -> Slept:
    record = {
        "allocator": allocator,
        "round": round,
        "kept_bytes": 100 * MIB,
        "to_host": 1000.0 * MIB,
        "from_host": 1000.0 * MIB,
        "first_sleep": 2.0,
        "sleep": 0.2,
        "wake": 0.3,
        "graphs_bytes": 50 * MIB,
        "host_bytes": 110 * MIB,
        "asleep_bytes": 500 * MIB,
        "wrong": 0,
        "versions": {},
    }
    return slept_from({**record, **values})


class Sleeps(unittest.TestCase):
    """What is made of sleeps."""

    records = (
        _slept("regraph", 0, sleep=0.11),
        _slept("regraph", 1, sleep=0.12, graphs_bytes=40 * MIB, from_host=2000.0 * MIB),
        _slept("vllm", 0, wrong=1),
        _slept("vllm", 1, wrong=2, wake=0.25),
    )

    def test_the_least_of_all_rounds_is_compared_over_the_fastest_link(self) -> None:
        of = figures(self.records)
        self.assertEqual(list(of), ["vllm", "regraph"])
        self.assertEqual(of["regraph"]["sleep"], 0.11)
        self.assertAlmostEqual(of["regraph"]["sleep over link"], 1.1)
        self.assertAlmostEqual(of["vllm"]["wake over link"], 5.0)
        self.assertEqual((of["regraph"]["graphs"], of["vllm"]["wrong"]), (40, 3))

    def test_what_is_better_is_in_bold(self) -> None:
        text = table_of_sleeps(list(self.records), {"gpu": "one"})
        self.assertIn("| sleep, s | 0.200 | **0.110** |", text)
        self.assertIn("| wake, s | **0.250** | 0.300 |", text)
        self.assertIn("| wrong outputs | 3 | **0** |", text)
        self.assertIn("| host memory, MiB | 110 | 110 |", text)
        self.assertIn("* gpu: one", text)
        with self.assertRaises(ValueError):
            slept_from({"allocator": "regraph"})

    def test_they_are_drawn_for_light_pages_and_for_dark_ones(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            paths = draw_sleeps(list(self.records), Path(directory) / "a.svg")
            self.assertEqual([path.name for path in paths], ["a-light.svg", "a-dark.svg"])
            for path in paths:
                self.assertIn(">1.10</text>", path.read_text())

    def test_of_a_wheel_that_is_there_only_what_is_needed_is_taken(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            peers, kind = Path(directory), KINDS["vllm"]
            with zipfile.ZipFile(peers / "vllm-0.33.0-cp38-abi3-linux_x86_64.whl", "w") as wheel:
                wheel.writestr("vllm/device_allocator/cumem.py", "")
                wheel.writestr("vllm/engine.py", "")
            self.assertEqual(kind.fetch(peers), "")
            files = [path.name for path in kind.folder(peers).rglob("*.*") if path.is_file()]
            self.assertEqual(files, ["cumem.py"])
            # What is there is not fetched again.
            self.assertEqual(kind.fetch(peers), "")


def run_all() -> int:
    """Runs all tests; 0 if none fails."""
    suite = unittest.defaultTestLoader.loadTestsFromName(__name__)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1

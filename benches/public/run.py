"""regraph's layouts beside OmniMalloc's placements, on instances that others wrote: a table in Markdown.

python3 benches/public/run.py [--out results.md] [--only NAME]... [--idealloc CLONE] [--limit SECONDS] [--lab BINARY]

Heights are the same in every run but for `supermalloc`'s, which searches for three seconds. README.md has the rest.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / "target" / "public"

# cappadokes/idealloc, MIT, Copyright (c) 2024 Christos Lamprakos: a folder and a name, and the file's SHA-256.
IDEALLOC = "a21f84d5f2556046c198ac80c4af325b3be72e52"
IDEALLOC_FILES = {
    "iopddl/G_1": "97bb794b9367d8675e9539251a0f67c2ed44325ef8a1395c69b8d184d8aa6fd0",
    "somas_tensors/resnet50": "db5deec5d10de293db06ff280065ae8646ba61a6a2af7400421d9b3eb5d2e90a",
    "somas_tensors/pangu_2.6B": "45faf9567019cf93048d5ed0697f37c3be9e49a7846039aabd1451cc7c44c1dd",
    "iopddl/S_1": "afc5af9b27acf4a06ffa22da1677618dd27333cedc4142cfd1e985531f7fa25e",
    "iopddl/Y_1": "8231a0fd786aade809f3934010776c0429cc176d635ea6307111cdd423c598d7",
}
# OmniMalloc's patterns of synchronisation, and how many threads and blocks are drawn.
PATTERNS = [
    "independent",
    "pairs",
    "subset",
    "sparse",
    "irregular",
    "ring",
    "tree",
    "groups",
    "barrier",
    "fork_join",
    "dense",
]
SHAPES = [(4, 200), (8, 1000)]
VECTOR = ["omni", "best_fit", "greedy_by_size"]
# It places by intervals alone.
SCALAR = [*VECTOR, "supermalloc"]
# What takes less is run again, and the least time counts; in nanoseconds.
AGAIN_BELOW = 1_000_000_000


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        self.lab = arguments.lab or build()
        self.disagreements = []
        self.notes = []
        version = self.omni("version")
        self.omnimalloc = version.get("version")
        if self.omnimalloc is None:
            self.notes.append(
                "OmniMalloc is not installed where this Python looks, so its columns and the instances of its "
                "generator are left out, and its check of the placements too."
            )

    def omni(self, *arguments):
        """OmniMalloc's answer; an empty one where it has none."""
        command = [sys.executable, str(HERE / "omni.py"), *map(str, arguments)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self.arguments.limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"late": True}
        if done.returncode != 0:
            return {"error": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
        return json.loads(done.stdout)

    def layout(self, path):
        """regraph's figures of an instance, and where it placed the blocks."""
        placed = CACHE / "placed.csv"
        best = None
        for _ in range(3):
            command = [self.lab, "layout", str(path), "--json", "-o", str(placed)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(done.stderr.strip())
            now = json.loads(done.stdout)
            for time in ("minimum_ns", "layout_ns"):
                now[time] = min(now[time], best[time]) if best else now[time]
            best = now
            if best["layout_ns"] > AGAIN_BELOW:
                break
        return best, placed

    def rows(self, title, instances, allocators):
        """The lines of a table."""
        allocators = allocators if self.omnimalloc else []
        print(f"{title}: {len(instances)} instances", file=sys.stderr)
        head = ["instance", "blocks", "clocks", "minimum", "its time", "`antichain_pressure`", "regraph"]
        head += [f"`{name}`" for name in allocators]
        lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for name, path in instances:
            print(f"  {name}", file=sys.stderr, flush=True)
            own, placed = self.layout(path)
            minimum = own["minimum"]
            pressure = self.omni("pressure", path) if self.omnimalloc else {}
            if pressure.get("minimum", minimum) != minimum:
                said = f"{name}: the minimum is {minimum}, `antichain_pressure` says {pressure['minimum']}"
                self.disagreements.append(said)
            results = [{"height": own["height"], "ns": own["layout_ns"]}]
            results += [self.omni("place", path, allocator) for allocator in allocators]
            if self.omnimalloc:
                check = self.omni("check", placed)
                if check.get("late"):
                    self.notes.append(f"{name}: OmniMalloc did not check regraph's placement within the limit.")
                elif check.get("height") != own["height"]:
                    said = check.get("error", f"height {check.get('height')}, not {own['height']}")
                    self.disagreements.append(f"{name}: OmniMalloc's check of regraph's placement: {said}")
            times = [own["minimum_ns"], pressure.get("ns")]
            least = min(time for time in times if time is not None)
            bold = [mark(seconds(time), time == least and self.omnimalloc) for time in times if time is not None]
            bold += ["-" if not pressure.get("late") else "late"] * (2 - len(bold))
            lines.append(
                "| "
                + " | ".join([name, str(own["blocks"]), str(own["threads"]), str(minimum), *bold])
                + " | "
                + " | ".join(cells(results, minimum))
                + " |"
            )
        return [*lines, ""]


def cells(results, minimum):
    """Each result's height over the minimum, and its time; the least of each are bold, unless one is late."""
    height = min(result["height"] for result in results if "height" in result)
    time = min(result["ns"] for result in results if "ns" in result)
    several = len(results) > 1 and not any(result.get("late") for result in results)
    for result in results:
        if "height" not in result:
            yield "late" if result.get("late") else f"failed: {result.get('error')}"
            continue
        over = "1" if result["height"] == minimum else f"{result['height'] / minimum:.5f}"
        yield (
            f"{mark(over, several and result['height'] == height)}, "
            f"{mark(seconds(result['ns']), several and result['ns'] == time)}"
        )


def mark(text, bold):
    return f"**{text}**" if bold else text


def seconds(nanoseconds):
    if nanoseconds < 1e6:
        return f"{nanoseconds / 1e3:.0f} us"
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds < 1e9 else f"{nanoseconds / 1e9:.1f} s"


def build():
    subprocess.run(["cargo", "build", "--release", "-p", "regraph-lab"], cwd=ROOT, check=True)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "regraph-lab")


def minimalloc():
    files = sorted((ROOT / "tests" / "minimalloc").glob("*.csv"))
    return [(f"minimalloc {file.name.split('.')[0]}", file) for file in files]


def idealloc(run):
    """Those of its instances that are in the cache, in the clone that was named, or can be fetched."""
    instances = []
    for name, digest in IDEALLOC_FILES.items():
        path = CACHE / f"idealloc-{name.replace('/', '-')}.csv"
        inside = f"benchmarks/{name}.csv"
        if not path.exists():
            try:
                if run.arguments.idealloc:
                    command = ["git", "-C", run.arguments.idealloc, "show", f"{IDEALLOC}:{inside}"]
                    content = subprocess.run(command, capture_output=True, check=True).stdout
                else:
                    address = f"https://raw.githubusercontent.com/cappadokes/idealloc/{IDEALLOC}/{inside}"
                    with urllib.request.urlopen(address, timeout=60) as answer:
                        content = answer.read()
            except (OSError, subprocess.CalledProcessError) as error:
                run.notes.append(f"idealloc {name} could not be fetched and is left out: {error}")
                continue
            if hashlib.sha256(content).hexdigest() != digest:
                raise SystemExit(f"{inside} of idealloc is not the file that was expected")
            path.write_bytes(content)
        instances.append((f"idealloc {name.split('/')[1]}", path))
    return instances


def generated(run):
    instances = []
    for threads, blocks in SHAPES if run.omnimalloc else []:
        for pattern in PATTERNS:
            path = CACHE / f"sync-{pattern}-{threads}-{blocks}.csv"
            answer = run.omni("generate", pattern, threads, blocks, path)
            if "blocks" not in answer:
                raise SystemExit(f"OmniMalloc's generator, {pattern}: {answer.get('error')}")
            instances.append((f"{pattern} {threads}", path))
    return instances


def traces(run):
    instances = []
    for trace in sorted((ROOT / "tests" / "traces").glob("*_s[0-9].jsonl")):
        path = CACHE / f"{trace.stem}.csv"
        with path.open("wb") as output:
            done = subprocess.run([run.lab, "export-csv", str(trace)], stdout=output, check=False)
        if done.returncode == 0:
            instances.append((trace.stem, path))
    return instances


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a file for the tables, by default standard output")
    parser.add_argument("--only", action="append", help="instances whose name has this in it; may be repeated")
    parser.add_argument("--idealloc", metavar="CLONE", help="a clone of cappadokes/idealloc, instead of the network")
    parser.add_argument("--limit", type=float, default=300.0, help="the most seconds for a placement (300)")
    parser.add_argument("--lab", help="a regraph-lab that is built, instead of building one")
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    run = Run(arguments)

    def chosen(instances):
        only = arguments.only
        return [it for it in instances if not only or any(name in it[0] for name in only)]

    lines = []
    for title, instances, allocators in (
        ("Intervals", minimalloc() + idealloc(run), SCALAR),
        ("Vector clocks, from OmniMalloc's generator", generated(run), VECTOR),
        ("Captures of this project", traces(run), VECTOR),
    ):
        instances = chosen(instances)
        if instances:
            lines += run.rows(title, instances, allocators)
    version = run.omnimalloc or "not installed"
    top = [
        "# Results",
        "",
        f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"OmniMalloc {version}; at most {arguments.limit:.0f} s for a placement (*late*: not within). "
        "`python3 benches/public/run.py`; [README.md](README.md) says what is what.",
        "",
        "Of a placement: its height over the minimum, and its time. The least are bold, unless one of them is late.",
        "",
    ]
    ends = [f"* {note}" for note in run.notes]
    text = "\n".join([*top, *lines, *ends]).rstrip() + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text, end="")
    if run.disagreements:
        print("\n".join(["DISAGREEMENT:", *run.disagreements]), file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()

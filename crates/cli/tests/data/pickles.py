"""Writes the pickles beside it: snapshots in PyTorch's layout (torch/csrc/cuda/Module.cpp, as of 2.15), before and after
a step. They have what PyTorch's have and regraph's have not: frames that are one object, sizes once asked for of what
lies free, blocks without addresses (before 2.2), kinds of events that are newer, numbers of settings by text.
"""

import pickle
from pathlib import Path

MIB = 1 << 20
BASE = 0x7F00_0000_0000
LIBRARY = {"filename": "/env/lib/python3.11/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"}
FORWARD = [LIBRARY, {"filename": "model.py", "line": 31, "name": "forward"}]
BACKWARD = [{"filename": "train.py", "line": 8, "name": "step"}]


def segment(index, blocks, old=False):
    address = at = BASE + index * 64 * MIB
    rows = []
    for size, requested, state, frames in blocks:
        row = {"address": at, "size": size, "requested_size": requested, "state": state, "frames": frames}
        if old:
            del row["address"]
        rows.append(row)
        at += size
    active = [row for row in rows if row["state"] != "inactive"]
    return {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "allocated_size": sum(r["size"] for r in rows if r["state"] == "active_allocated"),
        "active_size": sum(r["size"] for r in active),
        "requested_size": sum(r["requested_size"] for r in active),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, index),
        "is_expandable": False,
        "frames": FORWARD,
        "blocks": rows,
    }


def event(action, size, frames=FORWARD):
    return {
        "action": action,
        "addr": BASE,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
        "frames": frames,
    }


def snapshot(segments):
    return {
        "segments": segments,
        "device_traces": [[event("alloc", MIB), event("annotate", 0), event("free_requested", MIB)]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {"1": 0, "2": 0},
        },
        "external_annotations": [],
    }


USED, FREE = "active_allocated", "inactive"
before = snapshot([
    segment(0, [(2 * MIB, 2 * MIB, USED, FORWARD), (2 * MIB, 3 * MIB, FREE, [])], old=True),
    segment(1, [(4 * MIB, 4 * MIB - 100, USED, BACKWARD)]),
])
after = snapshot([
    segment(0, [(2 * MIB, 2 * MIB, USED, FORWARD), (2 * MIB, MIB, USED, FORWARD)]),
    segment(1, [(4 * MIB, 4 * MIB - 100, "active_pending_free", BACKWARD)]),
    segment(2, [(8 * MIB, 8 * MIB, USED, [])]),
])
here = Path(__file__).parent
for name, state, protocol in (("before", before, 2), ("after", after, 4)):
    (here / f"{name}.pickle").write_bytes(pickle.dumps(state, protocol))

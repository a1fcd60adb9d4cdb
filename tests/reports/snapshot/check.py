"""Opens a snapshot's two forms without the crate: check.py SNAPSHOT.json SNAPSHOT.pickle"""

import json
import pickle
import pickletools
import sys

# What the unpickler in PyTorch's MemoryViz.js knows.
VIEWER = set(
    "PROTO FRAME STOP MARK EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS"
    " EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE"
    " NEWFALSE SHORT_BINUNICODE BINUNICODE BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE".split()
)
# Longer LONG1s become BigInts there, which cannot be added to numbers.
NUMBER_BYTES = 8
# An opcode and the byte that says how long the number is.
LONG1_HEAD = 2

with open(sys.argv[1], encoding="utf-8") as file:
    from_json = json.load(file)
with open(sys.argv[2], "rb") as file:
    pickled = file.read()
from_pickle = pickle.loads(pickled)

# JSON has lists for tuples.
assert json.loads(json.dumps(from_pickle)) == from_json, "the forms differ"

opcodes = list(pickletools.genops(pickled))
unknown = {opcode.name for opcode, _, _ in opcodes} - VIEWER
assert not unknown, f"opcodes that the viewer does not know: {unknown}"
assert opcodes[0][1] in (2, 3, 4), "a protocol that the viewer refuses"
for (opcode, argument, position), (_, _, after) in zip(opcodes, opcodes[1:]):
    if opcode.name == "LONG1":
        assert after - position - LONG1_HEAD <= NUMBER_BYTES, f"{argument} is a BigInt"

for segment in from_pickle["segments"]:
    # What `_memory_viz.py` asserts: all bytes are accounted for.
    free, rounding, asked = 0, 0, 0
    address = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == address, "viewers add sizes up to find addresses"
        address += block["size"]
        if block["state"] == "active_allocated":
            asked += block["requested_size"]
            rounding += block["size"] - block["requested_size"]
        else:
            free += block["size"]
    assert free + rounding + asked == segment["total_size"], "bytes are missing"
    assert segment["device"] < len(from_pickle["device_traces"])

print(f"{len(opcodes)} opcodes of {sorted({opcode.name for opcode, _, _ in opcodes})}")

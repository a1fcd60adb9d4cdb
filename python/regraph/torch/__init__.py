"""regraph as the allocator of PyTorch's GPU memory.

    import regraph.torch

    regraph.torch.enable()  # before the first tensor on a GPU

From then on everything of PyTorch works on regraph: tensors, streams, `torch.cuda.graph`,
`torch.cuda.make_graphed_callables`, and every `torch.cuda.memory_*` function.
"""

from regraph.torch.requirements import require_torch

require_torch()

# ruff: noqa: E402 -- the check above comes first.
from regraph.torch import memory_saver
from regraph.torch.budgeting import capture_budget
from regraph.torch.capturing import judge_capture
from regraph.torch.compacting import compact, excess_bytes
from regraph.torch.enabling import backend, enable, is_enabled
from regraph.torch.errors import Error, OutOfMemory, Refused
from regraph.torch.estimating import Estimate, estimate
from regraph.torch.executing import (
    Executables,
    Graph,
    executables,
    keep_executables,
    make_graphed_callables,
    release_executables,
)
from regraph.torch.explaining import explain
from regraph.torch.exporting import keep_exported
from regraph.torch.figures import (
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_pool_name,
)
from regraph.torch.learning import forget_learned, learn
from regraph.torch.lending import Loan, TakenLoan, borrow, lend, lent_bytes, take_loan
from regraph.torch.plotting import plot
from regraph.torch.reports import Capture, captures
from regraph.torch.sleeping import (
    Moved,
    Region,
    forget,
    free_host,
    host_bytes,
    is_asleep,
    outside_regions,
    put_graphs_into,
    region,
    regions,
    set_backup,
    sleep,
    try_sleep,
    wake,
)
from regraph.torch.snapshots import (
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    memory_snapshot,
)
from regraph.torch.tracing import Recording, record_trace
from regraph.torch.uses import record_use

__all__ = [
    "Capture",
    "Error",
    "Estimate",
    "Executables",
    "Graph",
    "Loan",
    "Moved",
    "OutOfMemory",
    "Recording",
    "Refused",
    "Region",
    "TakenLoan",
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "backend",
    "borrow",
    "capture_budget",
    "captures",
    "compact",
    "enable",
    "estimate",
    "excess_bytes",
    "executables",
    "explain",
    "forget",
    "forget_learned",
    "free_host",
    "get_per_process_memory_fraction",
    "host_bytes",
    "is_asleep",
    "is_enabled",
    "judge_capture",
    "keep_executables",
    "keep_exported",
    "learn",
    "lend",
    "lent_bytes",
    "make_graphed_callables",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_saver",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "outside_regions",
    "plot",
    "put_graphs_into",
    "record_trace",
    "record_use",
    "region",
    "regions",
    "release_executables",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_backup",
    "set_pool_name",
    "sleep",
    "take_loan",
    "try_sleep",
    "wake",
]

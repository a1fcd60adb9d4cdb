"""The native allocator's class beside those of PyTorch's minor versions, by their headers alone.

`python/build-native --headers target/torch-headers` fetches headers; REGRAPH_TORCH_HEADERS names another folder of that
form. Those of the PyTorch that is installed count too.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from regraph import compiling

FETCHED = Path(
    os.environ.get("REGRAPH_TORCH_HEADERS")
    or Path(__file__).parents[2] / "target" / "torch-headers"
)

#: PyTorch's virtual functions in the order of their table, as in 2.11, and the version that brought it of each
#: later one. Destructors have two entries.
ORDER = """
~Allocator ~Allocator allocate is_simple_data_ptr raw_deleter copy_data initialized emptyCache recordStream
getDeviceStats resetAccumulatedStats resetPeakStats getMemoryInfo raw_alloc raw_alloc_with_stream raw_delete init
getMemoryFraction setMemoryFraction getExpandableSegmentSizes enable isEnabled cacheInfo getBaseAllocation recordStream
snapshot beginAllocateToPool endAllocateToPool markCaptureBegin:2.13 markCaptureEnd:2.13 releasePool getPoolUseCount
createOrIncrefPool setUseOnOOM setNoSplit checkPoolLiveAllocations shareIpcHandle getIpcDevPtr isHistoryEnabled
getContextForPointer:2.12 recordHistory recordAnnotation pushCompileContext popCompileContext
supportsUserMetadata:2.14 setUserMetadata getUserMetadata annotateMemory:2.14 attachOutOfMemoryObserver
attachOomRejectionObserver:2.12 attachAllocatorTraceTracker enablePeerAccess memcpyAsync getCheckpointState
setCheckpointPoolState allocateWithAddress:2.13 name
""".split()

#: What the door leaves to PyTorch's class, and why.
LEFT = {
    "is_simple_data_ptr": "a block's context is its address, as PyTorch's class has it",
    "recordStream": "of two; the first calls the second with a CUDAStream",
    "getMemoryInfo": "asks the driver",
    "markCaptureBegin": "regraph asks the driver which capture a stream is in",
    "markCaptureEnd": "regraph asks the driver which capture a stream is in",
}

#: What the library needs of PyTorch that no version promises to keep: C++ functions and objects, by their names
#: without arguments.
UNSTABLE = set(
    """
    c10::Allocator::is_simple_data_ptr c10::Error c10::FreeCudaMemoryCallbacksRegistry
    c10::DeviceAllocator c10::DeviceAllocator::DeviceAllocator c10::DeviceAllocator::~DeviceAllocator
    c10::SetAllocator c10::Warning::Warning c10::WarningUtils::get_warnAlways c10::warn
    c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::parseArgs
    c10::cuda::CUDACachingAllocator::allocator
    c10::cuda::CUDAErrorLogCapture::CUDAErrorLogCapture
    c10::cuda::CUDAStream::query c10::cuda::CUDAStream::stream c10::cuda::CUDAStream::synchronize
    c10::cuda::ExchangeDevice c10::cuda::GetDevice c10::cuda::MaybeSetDevice c10::cuda::SetDevice
    c10::cuda::c10_cuda_check_implementation c10::cuda::current_device c10::cuda::device_count
    c10::cuda::getCurrentCUDAStream c10::cuda::getDefaultCUDAStream c10::cuda::getStreamFromPool
    c10::cuda::setCurrentCUDAStream
    c10::detail::deleteNothing c10::detail::torchCheckFail c10::detail::torchInternalAssertFail
    c10::impl::GPUTrace::gpuTraceState c10::impl::GPUTrace::haveState c10::impl::device_guard_impl_registry
    c10::memoryProfilingEnabled c10::operator<< c10::reportMemoryUsageToProfiler c10::reportOutOfMemoryToProfiler
    c10::utils::get_env
    """.split()
)


def _headers():
    """By the version's name, the headers that are there."""
    there = {path.name: path / "torch" / "include" for path in FETCHED.glob("2.*")}
    there.setdefault(str(torch.__version__).split("+")[0], Path(torch.__file__).parent / "include")
    header = Path("c10", "cuda", "CUDACachingAllocator.h")
    return {version: path for version, path in sorted(there.items()) if (path / header).is_file()}


def _cuda():
    """CUDA's headers."""
    fetched = FETCHED / "triton" / "triton" / "backends" / "nvidia" / "include"
    return fetched if fetched.is_dir() else next(compiling.cuda_headers(), None)


HEADERS = _headers()
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(_cuda() is None, reason="there are no CUDA headers"),
    pytest.mark.skipif(not HEADERS, reason="there are no headers of PyTorch's"),
]
every_version = pytest.mark.parametrize("version", HEADERS or ["none"])


def _number(version):
    return tuple(int(part) for part in version.split(".")[:2])


def _compile(version, source, *arguments):
    """Has g++ look at a program with a version's headers."""
    headers = HEADERS[version]
    command = ["g++", "-std=c++20" if _number(version) >= (2, 14) else "-std=c++17"]
    for folder in (headers, headers / "torch" / "csrc" / "api" / "include", _cuda()):
        command += ["-isystem", str(folder)]
    done = subprocess.run([*command, *arguments, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _sources(folder):
    """All of the door's sources as one program."""
    source = folder / "door.cpp"
    parts = sorted(compiling.SOURCES.glob("*.cpp"))
    source.write_text("".join(f'#include "{part}"\n' for part in parts))
    return source


@every_version
def test_the_class_is_as_its_version_has_it_member_by_member(version, tmp_path):
    """The compiler's own listing of the table of virtual functions."""
    if _number(version) < (2, 11):
        pytest.skip("the order is known from 2.11 on")
    dump = tmp_path / "classes"
    _compile(version, _sources(tmp_path), "-fsyntax-only", f"-fdump-lang-class={dump}")
    table = dump.read_text().split("Vtable for regraph::Allocator\n")[1].split("\n\n")[0]
    # Behind the offset and the type.
    entries = re.findall(r"^\d+ +\(int \(\*\)\(\.\.\.\)\)(\S+)$", table, re.MULTILINE)[1:]
    members = [tuple(entry.rsplit("::", 1)) for entry in entries]
    since = [member.partition(":") for member in ORDER]
    expected = [name for name, _, first in since if _number(version) >= _number(first or "2.11")]
    assert [name for _, name in members] == expected
    left = [name for of, name in members if of != "regraph::Allocator"]
    assert left == [name for name in LEFT if name in expected]


@every_version
def test_a_graph_object_begins_as_it_is_said(version, tmp_path):
    """The library reads a graph object without the headers of its class."""
    if not (HEADERS[version] / "ATen" / "cuda" / "CUDAGraph.h").is_file():
        pytest.skip("needs all headers of PyTorch")
    source = tmp_path / "layout.cpp"
    members = {"graph": "graph_", "executable": "graph_exec_", "capture": "capture_id_"}
    checks = "".join(
        f"    static_assert(offsetof(Open, {theirs}) == offsetof(regraph::GraphObject, {ours}));\n"
        f"    static_assert(sizeof({theirs}) == sizeof(regraph::GraphObject::{ours}));\n"
        for ours, theirs in members.items()
    )
    source.write_text(
        "#include <ATen/cuda/CUDAGraph.h>\n"
        f'#include "{compiling.SOURCES / "graphs.h"}"\n'
        "struct Open : at::cuda::CUDAGraph {\n"
        f"  void check() {{\n{checks}  }}\n"
        "};\n"
    )
    _compile(version, source, "-fsyntax-only", "-Wno-invalid-offsetof")


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs nm and c++filt")
@pytest.mark.parametrize("version", sorted(HEADERS, key=_number)[-1:])
def test_what_the_library_needs_that_is_not_stable_is_known(version, tmp_path):
    """It knows nothing of Python, and the list of what it needs of PyTorch does not grow unseen."""
    library = tmp_path / "library.so"
    _compile(
        version, _sources(tmp_path), "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o", library
    )
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    # What has a version behind it is of the C or C++ library, which keep it.
    needed = [line.split()[1] for line in symbols.splitlines() if "@" not in line]
    assert not [name for name in needed if re.match(r"_?Py[A-Z_]", name)]
    done = subprocess.run(
        ["c++filt", "-p"], input="\n".join(needed), check=True, capture_output=True, text=True
    )
    names = {
        re.sub(r"^(?:guard variable|typeinfo|vtable) for ", "", name).replace("[abi:cxx11]", "")
        for name in done.stdout.splitlines()
    }
    # CUDA's runtime keeps its functions, and the others are the compiler's.
    stable = re.compile(r"cuda[A-Z]|_ITM_|__gmon_start__|__cxa_|std::|operator ")
    assert {name for name in names if not stable.match(name)} <= UNSTABLE

"""The tool that says which driver call invalidates a capture, on a stand-in for the driver."""

import shutil
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parent / "tools" / "driver_calls.cpp"

# A capture of stream 7; `cuEventQuery` invalidates it.
DRIVER = """
extern "C" {
static int status = 0;
int cuStreamBeginCapture_v2(void*, int) { status = 1; return 0; }
int cuStreamIsCapturing(void*, int* told) { *told = status; return 0; }
int cuStreamEndCapture(void*, void**) { int was = status; status = 0; return was == 2 ? 901 : 0; }
int cuEventQuery(void*) { if (status == 1) { status = 2; return 900; } return 0; }
int cuEventCreate(void**, int) { return 0; }
int cuLaunchKernel(void*, int, int, int, int, int, int, int, void*, void*, long last) {
  return last;
}
int cuGetProcAddress_v2(const char* name, void** found, int, unsigned long, void*) {
  *found = name[2] == 'E' ? (void*)&cuEventQuery : 0;
  return *found ? 0 : 500;
}
}
"""

PROGRAM = """
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
int main(int, char** arguments) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto find = [&](const char* name) { return dlsym(driver, name); };
  auto begin = (int (*)(void*, int))find("cuStreamBeginCapture_v2");
  auto end = (int (*)(void*, void**))find("cuStreamEndCapture");
  auto create = (int (*)(void**, int))find("cuEventCreate");
  auto launch = (int (*)(void*, int, int, int, int, int, int, int, void*, void*, long))find(
      "cuLaunchKernel");
  auto ask = (int (*)(const char*, void**, int, unsigned long, void*))find("cuGetProcAddress_v2");
  void* query = nullptr;
  ask("cuEventQuery", &query, 13000, 0, nullptr);
  void* stream = (void*)7;
  begin(stream, 0);
  create(nullptr, 0);
  int launched = launch(nullptr, 1, 2, 3, 4, 5, 6, 7, nullptr, nullptr, 42);
  if (atoi(arguments[1])) ((int (*)(void*))query)(nullptr);
  printf("%d %d\\n", launched, end(stream, nullptr));
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the tool, the stand-in and the program."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("built")
    (folder / "driver.cpp").write_text(DRIVER)
    (folder / "program.cpp").write_text(PROGRAM)
    shared = ["c++", "-O2", "-std=c++17", "-shared", "-fPIC", "-o"]
    for command in (
        [*shared, "driver_calls.so", str(TOOL), "-ldl"],
        [*shared, "libcuda.so.1", "driver.cpp"],
        ["c++", "-std=c++17", "-o", "program", "program.cpp", "-ldl"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


def run(folder, invalidates):
    environment = {"LD_PRELOAD": f"{folder}/driver_calls.so", "LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(
        [f"{folder}/program", str(int(invalidates))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_the_call_is_named_with_its_library(built):
    done = run(built, True)
    assert done.stdout == "42 901\n"
    (line,) = [line for line in done.stderr.splitlines() if "INVALIDATED" in line]
    assert "cuEventQuery -> 900 INVALIDATED the capture of stream 0x7" in line
    assert line.endswith("program")


def test_a_sound_capture_is_not_spoken_of(built):
    done = run(built, False)
    assert done.stdout == "42 0\n"
    assert "INVALIDATED" not in done.stderr

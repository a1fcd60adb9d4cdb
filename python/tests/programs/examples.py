"""The examples, which test themselves."""

import subprocess
import sys
from pathlib import Path

from common import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def two_models_sleep_in_turns(folder):
    """A server's answers are those of eager work, and only one of its models is on the device."""
    command = [sys.executable, str(EXAMPLES / "two_models.py"), "--selftest"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=170)
    print(done.stdout)
    assert done.returncode == 0
    assert " wakes: " in done.stdout and "bit for bit" in done.stdout


PROGRAMS = {function.__name__: function for function in (two_models_sleep_in_turns,)}

if __name__ == "__main__":
    main(PROGRAMS)

"""The comparison in the tool that runs compiled models; the models need a GPU."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parent / "tools" / "compiled_models.py"
_spec = importlib.util.spec_from_file_location("compiled_models", PATH)
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)


def result(tokens="ab", losses=(1.0, 2.0)):
    """What a program's process prints."""
    return {
        "outputs": {"tokens": tokens, "losses": list(losses)},
        "seconds": {"replay": 0.001},
        "bytes": {"reserved": models.MIB},
    }


def test_equal_outputs(capsys):
    near = result(losses=(1.00001, 2.0))
    assert models.compare("training", {"pytorch": result(), "regraph": near})
    printed = capsys.readouterr().out
    assert "equal: 2 outputs" in printed
    assert [line.split() for line in printed.splitlines()][3:5] == [
        ["reserved,", "MiB", "1.00", "1.00"],
        ["replay,", "ms", "1.00", "1.00"],
    ]


def test_outputs_that_differ(capsys):
    for other, name in [
        (result(tokens="ac"), "tokens"),
        (result(losses=(1.001, 2.0)), "losses"),
        (result(losses=(1.0,)), "losses"),
        (result(losses=(1.0, float("nan"))), "losses"),
    ]:
        assert not models.compare("training", {"pytorch": result(), "regraph": other})
        assert f"DIFFERENT: {name}" in capsys.readouterr().out


def test_an_output_too_few():
    fewer = {**result(), "outputs": {}}
    assert not models.compare("training", {"pytorch": result(), "regraph": fewer})


def test_a_program_that_failed(capsys):
    failed = {"error": "exit code 1: no memory", "text": ""}
    assert not models.compare("training", {"pytorch": result(), "regraph": failed})
    assert "failed under regraph: exit code 1: no memory" in capsys.readouterr().out

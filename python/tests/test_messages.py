"""Messages in Python's `logging`; needs no PyTorch."""

import logging

import pytest

import regraph
from regraph import messages


@pytest.fixture
def levels(native, monkeypatch):
    """The levels that the library was told, with a logger whose level the program has not set."""
    monkeypatch.delenv(messages.VARIABLE, raising=False)
    kind = type(messages.logger)
    messages.logger.__class__ = logging.Logger
    messages.logger.setLevel(logging.NOTSET)
    native.levels.clear()
    yield native.levels
    messages.logger.setLevel(logging.NOTSET)
    messages.logger.__class__ = kind


def test_the_library_follows_the_loggers_level(levels):
    messages.begin()
    assert levels == [logging.getLogger().getEffectiveLevel()]
    logging.getLogger("regraph").setLevel("DEBUG")
    logging.getLogger("regraph").setLevel(logging.INFO)
    assert levels[1:] == [logging.DEBUG, logging.INFO]
    messages.begin()
    assert levels[3:] == [logging.INFO]


@pytest.mark.parametrize(
    ("said", "level"),
    [("debug", 10), ("INFO", 20), ("warn", 30), ("error", 40), ("off", 51), ("loud", None)],
)
def test_the_environment_gives_a_level(levels, monkeypatch, said, level):
    monkeypatch.setenv(messages.VARIABLE, said)
    messages.begin()
    assert levels[-1] == (level or logging.getLogger().getEffectiveLevel())


def test_what_is_no_level_is_told_once(levels, monkeypatch, caplog):
    monkeypatch.setattr(messages, "_warned", set())
    monkeypatch.setenv(messages.VARIABLE, "loud")
    messages.begin()
    messages.begin()
    assert caplog.messages == [
        "REGRAPH_LOG: expected off, error, warn, info, debug, found 'loud': no effect"
    ]


def test_the_programs_level_comes_before_the_environments(levels, monkeypatch):
    messages.logger.setLevel(logging.ERROR)
    monkeypatch.setenv(messages.VARIABLE, "debug")
    messages.begin()
    assert levels == [logging.ERROR]


def test_a_logger_of_the_programs_own_class_stays(levels):
    class Own(logging.Logger):
        pass

    messages.logger.__class__ = Own
    messages.begin()
    assert type(messages.logger) is Own
    messages.logger.setLevel(logging.INFO)
    messages.begin()
    assert levels[-1] == logging.INFO


def test_starting_follows_it(levels):
    from regraph import starting

    starting.start()
    assert levels


def test_metrics_are_the_librarys(native):
    assert regraph.metrics() == native.answers["metrics"]

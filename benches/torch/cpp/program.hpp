// Random captures, drawn before anything is timed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What a program does. Streams and blocks go by number, blocks in the order of allocation.
struct Operation {
    enum Kind { launch, wait, allocate, record, release } kind;
    // The stream that launches, waits, allocates or is recorded.
    std::uint32_t stream;
    // launch: the block that the kernel writes, or none. wait: the stream that is waited for.
    // allocate, record, release: the block.
    std::uint32_t other;
    // allocate: its size.
    std::uint64_t bytes;
};

constexpr std::uint32_t none = UINT32_MAX;

// The operations between a capture's fork and its last join.
struct Program {
    std::string name;
    std::uint32_t streams = 1;
    std::uint32_t blocks = 0;
    std::vector<Operation> operations;
};

// A program that can be drawn, by its name.
struct Choice {
    std::string name;
    bool sweep;
    std::uint32_t streams;
    std::uint32_t steps;
    double alloc, free, join;

    Program draw() const;
};

// All programs: those of `regraph-lab sweep`, and those of the crate's bench `alloc_free`.
std::vector<Choice> choices();

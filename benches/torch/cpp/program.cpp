#include "program.hpp"

#include <algorithm>
#include <cstdio>

namespace {

// splitmix64, as in crates/lab/src/random.rs.
class Random {
public:
    explicit Random(std::uint64_t seed) : state(seed) {}

    // From 0 to below `limit`, which is not 0.
    std::uint64_t below(std::uint64_t limit) {
        return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * limit) >> 64);
    }

    // From 0 to below 1.
    double fraction() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }

private:
    std::uint64_t next() {
        state += 0x9e3779b97f4a7c15;
        std::uint64_t value = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
        value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
        return value ^ (value >> 31);
    }

    std::uint64_t state;
};

class Writer {
public:
    Writer(const std::string& name, std::uint32_t streams) {
        program.name = name;
        program.streams = streams;
    }

    void launch(std::uint32_t stream, std::uint32_t block) {
        program.operations.push_back({Operation::launch, stream, block, 0});
    }
    void wait(std::uint32_t stream, std::uint32_t on) {
        program.operations.push_back({Operation::wait, stream, on, 0});
    }
    std::uint32_t allocate(std::uint32_t stream, std::uint64_t bytes) {
        program.operations.push_back({Operation::allocate, stream, program.blocks, bytes});
        return program.blocks++;
    }
    void record(std::uint32_t stream, std::uint32_t block) {
        program.operations.push_back({Operation::record, stream, block, 0});
    }
    void release(std::uint32_t block) {
        program.operations.push_back({Operation::release, 0, block, 0});
    }

    Program program;
};

// Choice for choice that of crates/lab/src/sweep/workload.rs.
Program sweep(const Choice& choice) {
    Random random(1);
    Writer writer(choice.name, choice.streams);
    auto any = [&] { return static_cast<std::uint32_t>(random.below(choice.streams)); };
    std::vector<std::uint32_t> live;
    writer.launch(0, none);
    for (std::uint32_t stream = 1; stream < choice.streams; stream++) writer.wait(stream, 0);
    for (std::uint32_t step = 0; step < choice.steps; step++) {
        writer.launch(any(), none);
        if (random.fraction() < choice.join) {
            std::uint32_t stream = any();
            auto skip = static_cast<std::uint32_t>(random.below(choice.streams - 1));
            writer.wait(stream, (stream + 1 + skip) % choice.streams);
        }
        if (random.fraction() < choice.alloc) {
            std::uint32_t own = any();
            std::uint32_t block = writer.allocate(own, 4 << 20);
            live.push_back(block);
            std::uint32_t stream = any();
            if (stream != own) writer.wait(stream, own);
            writer.launch(stream, block);
            if (stream != own) writer.record(stream, block);
        }
        if (random.fraction() < choice.free && !live.empty()) {
            std::size_t index = random.below(live.size());
            writer.release(live[index]);
            live[index] = live.back();
            live.pop_back();
        }
    }
    for (std::uint32_t stream = 1; stream < choice.streams; stream++) writer.wait(0, stream);
    return std::move(writer.program);
}

// That of benches/common/script.rs: a step allocates, or frees, or joins, and every second join is
// for the sake of a block of the stream that is waited for.
Program mixed(const Choice& choice) {
    constexpr std::uint64_t low = 4 << 10, high = 1 << 20;
    struct Live {
        std::uint32_t block, stream;
    };
    Random random(0x5eed);
    Writer writer(choice.name, choice.streams);
    std::vector<Live> live;
    auto below = [&](std::uint64_t limit) {
        return static_cast<std::uint32_t>(random.below(limit));
    };
    writer.launch(0, none);
    for (std::uint32_t stream = 1; stream < choice.streams; stream++) writer.wait(stream, 0);
    for (std::uint32_t step = 0; step < choice.steps; step++) {
        double drawn = random.fraction();
        bool joins = drawn >= choice.alloc + choice.free;
        if (!joins && (drawn < choice.alloc || live.empty())) {
            std::uint32_t stream = below(choice.streams);
            std::uint32_t block = writer.allocate(stream, low + random.below(high - low));
            live.push_back({block, stream});
            writer.launch(stream, block);
        } else if (!joins) {
            std::size_t index = random.below(live.size());
            writer.release(live[index].block);
            live[index] = live.back();
            live.pop_back();
        } else {
            Live used{none, 0};
            if (random.fraction() < 0.5 && !live.empty()) used = live[random.below(live.size())];
            std::uint32_t on = used.block == none ? below(choice.streams) : used.stream;
            std::uint32_t stream = (on + 1 + below(choice.streams - 1)) % choice.streams;
            writer.wait(stream, on);
            if (used.block != none) {
                writer.record(stream, used.block);
                writer.launch(stream, used.block);
            }
        }
    }
    for (std::uint32_t stream = 1; stream < choice.streams; stream++) writer.wait(0, stream);
    return std::move(writer.program);
}

std::string sweep_name(const Choice& choice) {
    char text[96];
    std::snprintf(text, sizeof text, "cpp-sweep-%us-%u-a%.1f-f%.1f-j%.1f", choice.streams,
                  choice.steps, choice.alloc, choice.free, choice.join);
    return text;
}

}  // namespace

Program Choice::draw() const { return sweep ? ::sweep(*this) : mixed(*this); }

std::vector<Choice> choices() {
    std::vector<Choice> all;
    struct {
        const char* name;
        double alloc, free;
    } const mixes[] = {{"grow", 0.4, 0.3}, {"join", 0.3, 0.3}, {"steady", 0.45, 0.45}};
    for (std::uint32_t steps : {1000, 10000, 50000}) {
        for (std::uint32_t streams : {4, 16}) {
            for (const auto& mix : mixes) {
                std::string name = std::string("cpp-") + mix.name + "-" + std::to_string(streams) +
                                   "s-" + std::to_string(steps);
                all.push_back({name, false, streams, steps, mix.alloc, mix.free, 0});
            }
        }
    }
    for (std::uint32_t streams : {2, 4, 8}) {
        for (std::uint32_t steps : {1000, 10000}) {
            for (double alloc : {0.1, 0.3}) {
                for (double join : {0.1, 0.3}) {
                    Choice choice{"", true, streams, steps, alloc, 0.1, join};
                    choice.name = sweep_name(choice);
                    all.push_back(choice);
                }
            }
        }
    }
    return all;
}

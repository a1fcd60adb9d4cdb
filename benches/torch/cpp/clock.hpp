// A clock that costs little, and what its readings come to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

inline std::uint64_t nanoseconds() {
    using namespace std::chrono;
    return duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// The processor's counter. Calls before and after it may overlap with it by a few instructions.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#else
    return nanoseconds();
#endif
}

// How long a tick is, and how many pass between two readings with nothing between them.
struct Clock {
    double nanoseconds_per_tick;
    double cost;

    Clock() {
        std::uint64_t begin = nanoseconds(), first = ticks();
        while (nanoseconds() - begin < 50'000'000) {
        }
        std::uint64_t last = ticks(), end = nanoseconds();
        nanoseconds_per_tick = static_cast<double>(end - begin) / static_cast<double>(last - first);
        std::vector<std::uint64_t> empty(10'001);
        for (auto& one : empty) {
            std::uint64_t before = ticks();
            one = ticks() - before;
        }
        std::nth_element(empty.begin(), empty.begin() + 5'000, empty.end());
        cost = static_cast<double>(empty[5'000]);
    }
};

// The time of a call that needs no GPU, in nanoseconds: a number is added to a small ordered set, and
// another removed. The median of some tries. It says how fast the machine is at the moment.
inline double yardstick() {
    constexpr std::uint64_t calls = 20'000, kept = 256;
    std::vector<double> tries(15);
    for (double& one : tries) {
        std::set<std::uint64_t> numbers;
        std::uint64_t begin = nanoseconds();
        for (std::uint64_t call = 0; call < calls; call++) {
            numbers.insert(call * 0x9e3779b97f4a7c15);
            if (numbers.size() > kept) numbers.erase(numbers.begin());
        }
        one = static_cast<double>(nanoseconds() - begin) / static_cast<double>(calls);
    }
    std::nth_element(tries.begin(), tries.begin() + 7, tries.end());
    return tries[7];
}

// The time of one kind of call.
struct Tally {
    std::uint64_t sum = 0, calls = 0;

    template <typename Call>
    void time(Call&& call) {
        std::uint64_t before = ticks();
        call();
        sum += ticks() - before;
        calls++;
    }

    // Mean, in nanoseconds.
    double mean(const Clock& clock) const {
        if (calls == 0) return 0;
        double each = static_cast<double>(sum) / static_cast<double>(calls) - clock.cost;
        return std::max(each, 0.0) * clock.nanoseconds_per_tick;
    }
};

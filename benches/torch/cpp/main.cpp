// Random captures under PyTorch's allocator or regraph, call by call and without Python.
//
//     captures --list
//     captures --case NAME --allocator NAME [--library FILE] [--repeat N] [--out FILE]
//
// PyTorch's settings come from PYTORCH_ALLOC_CONF, regraph's from REGRAPH_ALLOC_CONF. `--simulated`
// runs regraph on its own simulated device. What is written is a record as run.py reads it.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "clock.hpp"
#include "parts.hpp"
#include "program.hpp"

namespace {

struct Figures {
    std::uint64_t reserved = 0, peak_allocated = 0, nodes = 0, capture = 0, body = 0;
    std::vector<std::uint64_t> launches;
    std::map<std::string, double> calls;
};

// Captures a program and says what it took.
Figures run(const Program& program, Allocator& allocator, Device& device, const Clock& clock) {
    std::vector<Stream> streams;
    for (std::uint32_t index = 0; index < program.streams; index++)
        streams.push_back(device.create_stream());
    std::vector<std::uint64_t> addresses(program.blocks);
    Tally allocations, frees, records;
    allocator.prepare(program.blocks, streams);

    Figures figures;
    std::uint64_t begin = nanoseconds();
    allocator.before_begin();
    device.begin_capture(streams[0]);
    allocator.after_begin();
    std::uint64_t begun = nanoseconds();
    for (const Operation& one : program.operations) {
        switch (one.kind) {
            case Operation::launch:
                device.launch(streams[one.stream], one.other == none ? 0 : addresses[one.other]);
                break;
            case Operation::wait:
                device.wait(streams[one.stream], streams[one.other]);
                break;
            case Operation::allocate:
                allocations.time([&] {
                    addresses[one.other] = allocator.allocate(one.other, one.bytes, one.stream);
                });
                break;
            case Operation::record:
                records.time([&] { allocator.record_stream(one.other, one.stream); });
                break;
            case Operation::release:
                frees.time([&] { allocator.release(one.other); });
                break;
        }
    }
    for (std::uint32_t stream = 1; stream < program.streams; stream++)
        device.wait(streams[0], streams[stream]);
    std::uint64_t done = nanoseconds();
    allocator.before_end(device.graph(streams[0]));
    Graph graph = device.end_capture(streams[0]);
    allocator.after_end();
    std::uint64_t ended = nanoseconds();
    device.instantiate(graph);
    std::uint64_t instantiated = nanoseconds();

    figures.reserved = allocator.reserved();
    figures.peak_allocated = allocator.peak_allocated();
    figures.nodes = device.nodes(graph);
    figures.capture = instantiated - begin;
    figures.body = done - begun;
    figures.launches = device.launch_graph(streams[0], 11);
    figures.calls = {
        {"ns per alloc", allocations.mean(clock)},
        {"ns per free", frees.mean(clock)},
        {"ns per record_stream", records.mean(clock)},
        {"capture without instantiation, ms", static_cast<double>(ended - begin) / 1e6},
        {"its begin, ms", static_cast<double>(begun - begin) / 1e6},
        {"its end, ms", static_cast<double>(ended - done) / 1e6},
        {"instantiation, ms", static_cast<double>(instantiated - ended) / 1e6},
        {"nodes", static_cast<double>(figures.nodes)},
        {"allocs", static_cast<double>(allocations.calls)},
        {"frees", static_cast<double>(frees.calls)},
    };
    device.destroy(graph);
    allocator.finish();
    return figures;
}

std::string quoted(const std::string& text) {
    std::string found = "\"";
    for (char letter : text) {
        if (letter == '"' || letter == '\\') found += '\\';
        found += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
    return found + "\"";
}

template <typename Values, typename Write>
std::string joined(const Values& values, Write write) {
    std::ostringstream text;
    const char* between = "";
    for (const auto& value : values) {
        text << between;
        write(text, value);
        between = ", ";
    }
    return text.str();
}

struct Arguments {
    std::string choice, allocator = "default", library, out;
    int repeat = 0;
    bool list = false, simulated = false;
};

Arguments parse(int count, char** words) {
    Arguments found;
    for (int index = 1; index < count; index++) {
        std::string word = words[index];
        if (word == "--list") {
            found.list = true;
        } else if (word == "--simulated") {
            found.simulated = true;
        } else if (index + 1 == count) {
            throw std::runtime_error("no such option, or one without its value: " + word);
        } else if (word == "--case") {
            found.choice = words[++index];
        } else if (word == "--allocator") {
            found.allocator = words[++index];
        } else if (word == "--library") {
            found.library = words[++index];
        } else if (word == "--out") {
            found.out = words[++index];
        } else if (word == "--repeat") {
            found.repeat = std::atoi(words[++index]);
        } else {
            throw std::runtime_error("no such option: " + word);
        }
    }
    return found;
}

Figures measure(const Arguments& arguments) {
    const Clock clock;
    std::unique_ptr<Device> device;
    std::unique_ptr<Allocator> allocator;
    if (!arguments.simulated) device = gpu();
    if (arguments.allocator == "regraph") {
        Regraph found = regraph(arguments.library, arguments.simulated);
        allocator = std::move(found.allocator);
        if (found.simulated) device = std::move(found.simulated);
    } else if (arguments.simulated) {
        throw std::runtime_error("only regraph has a simulated device");
    } else {
        allocator = torch_allocator();
    }
    // What the first capture of a process pays for once is not this program's.
    run(Choice{"", false, 4, 200, 0.4, 0.3, 0}.draw(), *allocator, *device, clock);
    for (const Choice& choice : choices())
        if (choice.name == arguments.choice) return run(choice.draw(), *allocator, *device, clock);
    throw std::runtime_error("no such case: " + arguments.choice);
}

std::string record(const Arguments& arguments) {
    std::ostringstream text;
    std::uint64_t begin = nanoseconds();
    text << "{\"case\": " << quoted(arguments.choice)
         << ", \"allocator\": " << quoted(arguments.allocator)
         << ", \"repeat\": " << arguments.repeat;
    try {
        double before = yardstick();
        Figures figures = measure(arguments);
        double after = yardstick();
        text << ", \"ok\": true, \"graphs\": 1, \"reserved_bytes\": " << figures.reserved
             << ", \"peak_allocated_bytes\": " << figures.peak_allocated
             << ", \"capture_ns\": [" << figures.capture << "], \"body_ns\": [" << figures.body
             << "], \"replay_ns\": ["
             << joined(figures.launches, [](auto& out, auto value) { out << value; })
             << "], \"yardstick_ns\": [" << before << ", " << after << "], \"calls\": {"
             << joined(figures.calls,
                       [](auto& out, const auto& call) {
                           out << quoted(call.first) << ": " << call.second;
                       })
             << "}";
    } catch (const std::exception& error) {
        text << ", \"ok\": false, \"error\": " << quoted(error.what());
    }
    text << ", \"seconds\": " << static_cast<double>(nanoseconds() - begin) / 1e9 << "}";
    return text.str();
}

}  // namespace

int main(int count, char** words) {
    try {
        Arguments arguments = parse(count, words);
        if (arguments.list) {
            for (const Choice& choice : choices()) std::cout << choice.name << '\n';
            return 0;
        }
        std::string line = record(arguments);
        std::cout << line << std::endl;
        if (!arguments.out.empty()) std::ofstream(arguments.out) << line << '\n';
        // Libraries that hold the device may take their time to end.
        std::_Exit(line.find("\"ok\": true") == std::string::npos);
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 2;
    }
}

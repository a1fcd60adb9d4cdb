// What regraph_rmm.hpp needs of RMM's header of this name, as RMM documents it.
#pragma once

#include <new>
#include <string>

namespace rmm {

class bad_alloc : public std::bad_alloc {
public:
    explicit bad_alloc(const std::string &message) : message_("std::bad_alloc: " + message) {}
    const char *what() const noexcept override { return message_.c_str(); }

private:
    std::string message_;
};

class out_of_memory : public bad_alloc {
public:
    explicit out_of_memory(const std::string &message) : bad_alloc("out_of_memory: " + message) {}
};

}  // namespace rmm

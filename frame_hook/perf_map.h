// Names of machine code for perf: a line of /tmp/perf-<pid>.map for each piece,
// as CPython writes them with -X perf, and beside those. It is written as the
// process goes; a child of fork() has a file of its own, which lacks what the
// parent had made. Where no file can be written, nothing is.
#pragma once

#include <cstddef>
#include <string>

namespace framejit {

void add_to_perf_map(const void* begin, size_t size, const std::string& name);

}  // namespace framejit

// All dicts of the process at once (CPython 3.11).
//
// Every dict that is made or changed takes its version from one counter of
// CPython. While the counter stands still no dict changes and none is made, so
// all that a predicate has found out about dicts still holds: one load in place
// of one for each dict. Newer CPythons have watchers for this (watchers.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace framejit {

// The counter, which has no public name: the one word among libpython's own
// data that follows the versions of dicts made on purpose. Null where none, or
// more than one, does. With the GIL.
const uint64_t* dict_version_counter();

// Predicates that look at this many dicts make use of it (tests: 0, all do).
size_t dicts_worth_an_epoch();
void set_dicts_worth_an_epoch(size_t count);

}  // namespace framejit

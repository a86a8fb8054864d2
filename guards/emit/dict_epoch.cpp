#include "guards/emit/dict_epoch.h"

#include <link.h>

#include <vector>

#include "frame_hook/py_ref.h"
#include "guards/set/object_layout.h"

namespace framejit {
namespace {

// Their code is there twice.
size_t worth_it = 32;

struct Range {
  const uint64_t* begin;
  const uint64_t* end;
};

// The writable segments of the object that CPython's code lies in. (Its types
// may have been copied to the program's.)
int find_data(dl_phdr_info* info, size_t, void* out) {
  const auto code = reinterpret_cast<uintptr_t>(PyDict_Type.tp_dealloc);
  std::vector<Range> ranges;
  bool is_libpython = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t begin = (info->dlpi_addr + segment.p_vaddr + 7) / 8 * 8;
    const uintptr_t end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    is_libpython |= begin <= code && code < end;
    if (!(segment.p_flags & PF_W)) continue;
    ranges.push_back({reinterpret_cast<const uint64_t*>(begin),
                      reinterpret_cast<const uint64_t*>(end / 8 * 8)});
  }
  if (!is_libpython) return 0;
  *static_cast<std::vector<Range>*>(out) = std::move(ranges);
  return 1;
}

// What the counter must be after so many more dicts; 0: no memory.
uint64_t version_after_dicts(int count) {
  uint64_t version = 0;
  for (int i = 0; i < count; ++i) {
    const Ref dict = Ref::steal(PyDict_New());
    if (!dict) {
      PyErr_Clear();
      return 0;
    }
    version = dict_version(dict.get());
  }
  return version;
}

const uint64_t* find_counter() {
#if PY_VERSION_HEX >= 0x030C0000
  return nullptr;
#endif
  std::vector<Range> ranges;
  dl_iterate_phdr(find_data, &ranges);
  std::vector<const volatile uint64_t*> found;
  uint64_t version = version_after_dicts(1);
  for (const Range& range : ranges) {
    for (const volatile uint64_t* word = range.begin; word < range.end; ++word)
      if (*word == version) found.push_back(word);
  }
  constexpr int kRounds = 16;
  for (int round = 1; round <= kRounds && version; ++round) {
    version = version_after_dicts(round);
    std::erase_if(found, [&](auto* word) { return *word != version; });
  }
  if (!version || found.size() != 1) return nullptr;
  return const_cast<const uint64_t*>(found[0]);
}

}  // namespace

const uint64_t* dict_version_counter() {
  static const uint64_t* const counter = find_counter();
  return counter;
}

size_t dicts_worth_an_epoch() { return worth_it; }
void set_dicts_worth_an_epoch(size_t count) { worth_it = count; }

}  // namespace framejit

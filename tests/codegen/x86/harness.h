// Runs kernels as machine code and in the interpreter, on buffers behind and
// before which there is no memory, and compares what they wrote.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "codegen/kernels/interpreter.h"
#include "codegen/kernels/text.h"
#include "codegen/x86/compile.h"
#include "tests/codegen/scalar/samples.h"

namespace framejit::codegen {

// `bytes` of memory between two pages that nobody may touch. at_end: they end
// where the second begins, else they begin behind the first.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, bool at_end) : bytes_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes + page - 1) / page * page;
    mapped_ = room + 2 * page;
    pages_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (room > 0) mprotect(pages_ + page, room, PROT_READ | PROT_WRITE);
    data_ = pages_ + page + (at_end ? room - bytes : 0);
  }
  ~GuardedBuffer() { munmap(pages_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_, mapped_;
  char *pages_, *data_;
};

inline Kernel kernel_of(const std::string& text) {
  std::string error;
  std::optional<Kernel> kernel = parse_kernel(text, &error);
  EXPECT_TRUE(kernel) << error << "\n" << text;
  if (!kernel) return {};
  EXPECT_EQ(verify(*kernel), "") << text;
  return *kernel;
}

// What an argument has: elements before and behind the one its places count
// from, and how they are filled.
struct Data {
  int64_t before = 0;
  int64_t count = 0;  // from there on
  enum Fill { kMixed, kTame, kIndices } fill = kMixed;
  int64_t limit = 1;  // kIndices: below
};

// How far a result may be from the interpreter's.
struct Tolerance {
  double relative = 0;  // 0: the same bits
  double absolute = 0;
};

inline Element random_element(std::mt19937_64& random, DType type,
                              const Data& data) {
  if (data.fill == Data::kIndices) {
    return element_of_integer(
        type,
        static_cast<int64_t>(random() % static_cast<uint64_t>(data.limit)));
  }
  if (data.fill == Data::kMixed && random() % 4 == 0) {
    static const auto specials = [] {
      std::vector<std::vector<Element>> lists;
      for (DType each : all_dtypes()) lists.push_back(special_elements(each));
      return lists;
    }();
    const auto& values = specials[static_cast<size_t>(type)];
    return values[random() % values.size()];
  }
  if (is_float(type)) {
    double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    return element_of(type, (unit - 0.5) * 8);
  }
  return element_of_integer(type, data.fill == Data::kTame
                                      ? static_cast<int64_t>(random() % 19) - 9
                                      : static_cast<int64_t>(random()));
}

inline bool is_near(DType type, Element got, Element want,
                    const Tolerance& tolerance) {
  if (same_element(type, got, want)) return true;
  if (!is_float(type) || tolerance.relative == 0) return false;
  double a = as_double(type, got), b = as_double(type, want);
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return std::fabs(a - b) <=
         tolerance.absolute + tolerance.relative * std::fabs(b);
}

// compile(), once for several sizes in a row.
inline const Compiled& compiled_kernel(const Kernel& kernel, X86Isa isa) {
  static std::map<std::pair<X86Isa, std::string>, Compiled> known;
  if (known.size() > 20) known.clear();
  std::pair<X86Isa, std::string> key(isa, print(kernel));
  auto found = known.find(key);
  if (found == known.end()) {
    found = known.emplace(key, compile(kernel, isa, true)).first;
    const auto& code = found->second.code;
    if (code) {
      EXPECT_EQ(code->beyond, "") << isa_name(isa) << print(kernel);
    }
  }
  return found->second;
}

class Comparison {
 public:
  Comparison(Kernel kernel, std::vector<int64_t> symbols,
             std::vector<Data> data, uint64_t seed = 1)
      : kernel_(std::move(kernel)),
        symbols_(std::move(symbols)),
        data_(std::move(data)),
        seed_(seed) {}

  Tolerance tolerance;
  bool expect_code = true;  // a refusal is a failure
  bool expect_success = true;

  // All of a kernel by something else than the interpreter; false: a Check
  // failed.
  using Run = std::function<bool(const int64_t* symbols,
                                 std::span<void* const> arguments)>;

  // Whether all instruction sets gave what the interpreter does. The reasons
  // why not are reported.
  bool run() {
    bool fine = true;
    for (X86Isa isa : cpu_isas()) {
      const Compiled& compiled = compiled_kernel(kernel_, isa);
      if (!compiled.code) {
        if (expect_code) {
          ADD_FAILURE() << isa_name(isa) << ": " << compiled.refused << "\n"
                        << print(kernel_);
        }
        fine &= !expect_code;
        continue;
      }
      ++compiled_;
      auto run = [&](const int64_t* symbols, std::span<void* const> arguments) {
        return codegen::run(*compiled.code, kernel_, symbols, arguments.data());
      };
      if (!run_as(isa_name(isa), run)) return false;
    }
    return fine;
  }
  // The same of another target.
  bool run_as(const std::string& target, const Run& run) {
    if (wanted_.empty()) holds_ = once({}, true, &wanted_);
    if (expect_success && !holds_) {
      ADD_FAILURE() << "a check fails\n" << print(kernel_);
      return false;
    }
    for (bool at_end : {true, false}) {
      std::vector<std::vector<char>> got;
      if (once(run, at_end, &got) != holds_) {
        ADD_FAILURE() << target << ": checks differ\n" << print(kernel_);
        return false;
      }
      if (holds_ && !compare(target, wanted_, got)) return false;
    }
    return true;
  }
  int compiled() const { return compiled_; }

 private:
  // run: empty for the interpreter.
  bool once(const Run& run, bool at_end,
            std::vector<std::vector<char>>* results) {
    std::mt19937_64 random(seed_);
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
    std::vector<void*> arguments;
    for (size_t i = 0; i < data_.size(); ++i) {
      const DType type = kernel_.arguments[i].type;
      const size_t size = dtype_size(type);
      const auto count = static_cast<size_t>(data_[i].before + data_[i].count);
      buffers.push_back(std::make_unique<GuardedBuffer>(count * size, at_end));
      char* memory = buffers.back()->data();
      for (size_t k = 0; k < count; ++k) {
        store_element(type, random_element(random, type, data_[i]),
                      memory + k * size);
      }
      arguments.push_back(memory +
                          data_[i].before * static_cast<int64_t>(size));
    }
    const bool holds = run ? run(symbols_.data(), arguments)
                           : interpret(kernel_, symbols_.data(), arguments);
    for (const auto& buffer : buffers) {
      results->emplace_back(buffer->data(), buffer->data() + buffer->bytes());
    }
    return holds;
  }

  bool compare(const std::string& target,
               const std::vector<std::vector<char>>& wanted,
               const std::vector<std::vector<char>>& got) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const DType type = kernel_.arguments[i].type;
      const size_t size = dtype_size(type);
      for (size_t k = 0; k * size < wanted[i].size(); ++k) {
        Element want = load_element(type, wanted[i].data() + k * size);
        Element have = load_element(type, got[i].data() + k * size);
        if (is_near(type, have, want, tolerance)) continue;
        std::string sizes;
        for (int64_t s : symbols_) sizes += std::to_string(s) + " ";
        ADD_FAILURE() << target << " argument " << i << " element " << k << ": "
                      << as_double(type, have) << " instead of "
                      << as_double(type, want) << " (" << have << ", " << want
                      << "), symbols " << sizes << "seed " << seed_ << "\n"
                      << print(kernel_);
        return false;
      }
    }
    return true;
  }

  Kernel kernel_;
  std::vector<int64_t> symbols_;
  std::vector<Data> data_;
  uint64_t seed_;
  int compiled_ = 0;
  std::vector<std::vector<char>> wanted_;
  bool holds_ = true;
};

}  // namespace framejit::codegen

// The language ladder: tests/bytecode/interpreter/language/*.py, small programs
// for every construct of the language, each run captured and plain on every
// CPython.
//
//   # ==== while with else             a title; the program is what follows
//   # since: 3.12                      only there and later
//   # args: (fake.tensor([1], [1.]), 3)   a tuple for f; may be repeated
//   # expect: FJ204 FJ102              ids of the breaks and fallbacks of the
//   #                                  args before; without it: one capture,
//   #                                  no break
//   # expect 3.11: FJ202               the same for one version of CPython
//   def f(x, n): ...
//
// Results, exceptions, and what happened to arguments and globals must be
// equal, and the breaks as expected.
#pragma once

#include <string>
#include <vector>

namespace framejit::bytecode::testing {

struct LanguageProgram {
  struct Call {
    std::string args;
    std::string expect;  // ids, separated by spaces
  };
  std::string title;
  std::string source;
  std::vector<Call> calls;
};

// The programs of language/<name>.py that the running CPython knows.
std::vector<LanguageProgram> language_programs(const std::string& name);

extern const std::vector<std::string> kLanguageFiles;

}  // namespace framejit::bytecode::testing

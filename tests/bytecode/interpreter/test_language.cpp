// Every construct of the language, captured and plain; also with a break
// before each instruction; and that these programs execute every opcode.
#include "tests/bytecode/interpreter/language.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "bytecode/code/opcode_table.h"
#include "frame_hook/frame_eval.h"
#include "tests/bytecode/capture/capture_support.h"
#include "tests/bytecode/capture/toy_compiler.h"

namespace framejit::bytecode::testing {

const std::vector<std::string> kLanguageFiles = {
    "control", "expressions", "functions", "exceptions", "objects", "since_312",
};

std::vector<LanguageProgram> language_programs(const std::string& name) {
  std::ifstream stream(std::string(FJ_SOURCE_DIR) +
                       "/tests/bytecode/interpreter/language/" + name + ".py");
  EXPECT_TRUE(stream) << name;
  const std::string here = "3." + std::to_string(PY_MINOR_VERSION);
  std::vector<LanguageProgram> programs;
  std::vector<int> since;
  std::string line;
  auto after = [&](const std::string& start, std::string* rest) {
    if (line.compare(0, start.size(), start) != 0) return false;
    *rest = line.substr(start.size());
    return true;
  };
  while (std::getline(stream, line)) {
    std::string rest;
    if (after("# ==== ", &rest)) {
      programs.push_back({rest, "", {}});
      since.push_back(0);
    } else if (programs.empty()) {
      continue;
    } else if (after("# since: 3.", &rest)) {
      since.back() = std::stoi(rest);
    } else if (after("# args: ", &rest)) {
      programs.back().calls.push_back({rest, ""});
    } else if (after("# expect: ", &rest) ||
               after("# expect " + here + ": ", &rest)) {
      programs.back().calls.back().expect = rest == "whole" ? "" : rest;
    } else {
      programs.back().source += line + "\n";
    }
  }
  std::vector<LanguageProgram> known;
  for (size_t i = 0; i < programs.size(); ++i) {
    EXPECT_FALSE(programs[i].calls.empty()) << programs[i].title;
    if (since[i] <= PY_MINOR_VERSION) known.push_back(std::move(programs[i]));
  }
  return known;
}

namespace {

std::string breaks_of(const CaptureRun& run) {
  std::string ids;
  for (const std::string& id : run.reasons) {
    ids += (ids.empty() ? "" : " ") + id;
  }
  return ids;
}

std::string details_of(const CaptureRun& run) {
  std::string text;
  for (size_t i = 0; i < run.reasons.size(); ++i) {
    text += "  " + run.reasons[i] + " " + run.details[i] + "\n";
  }
  return text;
}

class LanguageTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LanguageTest, CapturedAsPlain) {
  for (const LanguageProgram& program : language_programs(GetParam())) {
    for (const LanguageProgram::Call& call : program.calls) {
      SCOPED_TRACE(GetParam() + ": " + program.title + " " + call.args);
      CaptureRun run = check(program.source, call.args);
      EXPECT_EQ(call.expect, breaks_of(run)) << details_of(run);
      if (call.expect.empty()) EXPECT_EQ(run.captured, 1);
    }
  }
}

TEST_P(LanguageTest, BreaksEverywhere) {
  for (const LanguageProgram& program : language_programs(GetParam())) {
    SCOPED_TRACE(GetParam() + ": " + program.title);
    check_break_everywhere(program.source, program.calls.front().args);
  }
}

// What three calls in one namespace do, as text.
std::vector<std::string> three_calls(const LanguageProgram& program,
                                     const LanguageProgram::Call& call,
                                     ToyCompiler* compiler) {
  std::vector<std::string> seen;
  Ref globals = make_globals(program.source);
  Ref before = evaluate_text(globals.get(), "set(globals())");
  PyDict_SetItemString(globals.get(), "before_", before.get());
  Ref function = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
  if (compiler) function = compiler->compiled(function.get());
  for (int round = 0; round < 3; ++round) {
    Ref args = evaluate_text(globals.get(), call.args);
    PyDict_SetItemString(globals.get(), "args_", args.get());
    Ref result = Ref::steal(PyObject_CallObject(function.get(), args.get()));
    std::string error = result ? "" : take_error();
    if (!result) result = Ref::borrow(Py_None);
    PyDict_SetItemString(globals.get(), "result_", result.get());
    Ref text = evaluate_text(
        globals.get(),
        "repr((show(result_), show(args_), show_state(globals(), before_), "
        "[(k, show(globals()[k])) for k in sorted(before_) if k in globals() "
        "and k not in ('__builtins__', 'fake', 'f', 'show', 'show_state')]))");
    const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    seen.push_back((utf8 ? utf8 : take_error()) + " " + error);
  }
  return seen;
}

// Through the dispatcher, with native guards and the frame hook.
TEST_P(LanguageTest, CompiledAndCalledAgain) {
  ToyCompiler compiler;
  for (const LanguageProgram& program : language_programs(GetParam())) {
    for (const LanguageProgram::Call& call : program.calls) {
      SCOPED_TRACE(GetParam() + ": " + program.title + " " + call.args);
      auto plain = three_calls(program, call, nullptr);
      auto compiled = three_calls(program, call, &compiler);
      EXPECT_EQ(plain, compiled);
      EXPECT_EQ(hook_installs(), 0);
    }
  }
  if (language_programs(GetParam()).empty()) return;  // of later versions
  EXPECT_GT(compiler.captures, 0);
}

// The same without a compiled function: calls are seen by the watcher (CPython
// 3.12+) or by the hook.
TEST_P(LanguageTest, InScriptMode) {
  for (ScriptView view : {ScriptView::kBest, ScriptView::kHook}) {
    ToyCompiler compiler;
    for (const LanguageProgram& program : language_programs(GetParam())) {
      for (const LanguageProgram::Call& call : program.calls) {
        SCOPED_TRACE(GetParam() + ": " + program.title + " " + call.args);
        auto plain = three_calls(program, call, nullptr);
        compiler.start_script(view);
        auto compiled = three_calls(program, call, nullptr);
        stop_script_mode();
        EXPECT_EQ(plain, compiled);
        EXPECT_EQ(hook_installs(), 0);
      }
    }
    if (language_programs(GetParam()).empty()) continue;  // of later versions
    EXPECT_GT(compiler.captures, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ladder, LanguageTest,
                         ::testing::ValuesIn(kLanguageFiles),
                         [](const auto& info) { return info.param; });

// ---- opcodes

// What is never in the code of a function that is interpreted, and why. A row
// that a program does execute is wrong and fails.
struct NotInterpreted {
  const char* name;
  const char* why;
};
constexpr NotInterpreted kNotInterpreted[] = {
    {"CACHE", "room for data behind an instruction"},
    {"IMPORT_STAR", "module level only"},
    {"PRINT_EXPR", "interactive mode only"},
    {"LOAD_FROM_DICT_OR_GLOBALS", "annotation scopes of classes, which break"},
    {"GET_AWAITABLE", "coroutines, which run natively"},
    {"GET_AITER", "coroutines, which run natively"},
    {"GET_ANEXT", "coroutines, which run natively"},
    {"END_ASYNC_FOR", "coroutines, which run natively"},
    {"BEFORE_ASYNC_WITH", "coroutines, which run natively"},
    {"ASYNC_GEN_WRAP", "async generators, which run natively"},
    {"END_FOR", "FOR_ITER ends behind it"},
    {"PREP_RERAISE_STAR", "CHECK_EG_MATCH before it breaks"},
    {"RESERVED", "no instruction"},
    {"INTERPRETER_EXIT", "CPython's own trampoline"},
    {"EXIT_INIT_CHECK", "CPython's own trampoline"},
    {"ENTER_EXECUTOR", "undone when co_code is read"},
};

const char* why_not_interpreted(const std::string& name) {
  // What sys.monitoring puts in place of an instruction.
  if (name.starts_with("INSTRUMENTED_")) return "undone when co_code is read";
  for (const NotInterpreted& row : kNotInterpreted) {
    if (row.name == name) return row.why;
  }
  return nullptr;
}

std::set<std::string>* executed = nullptr;

// Notes the opcode at the offset and the prefixes before it.
void note_instruction(PyObject* code, int offset) {
  static std::map<PyObject*, std::set<int>>* seen =
      new std::map<PyObject*, std::set<int>>;
  auto [entry, is_new] = seen->try_emplace(code);
  if (is_new) Py_INCREF(code);
  if (!entry->second.insert(offset).second) return;
  Ref bytes = Ref::steal(PyCode_GetCode(reinterpret_cast<PyCodeObject*>(code)));
  const auto* raw =
      reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  const OpcodeTable& table = opcode_table();
  std::vector<std::string> prefixes;
  for (int at = 0; at <= offset;) {
    const OpcodeInfo& info = table[raw[at]];
    ASSERT_TRUE(info.row);
    prefixes.emplace_back(info.row->name);
    if (at == offset) executed->insert(prefixes.begin(), prefixes.end());
    if (info.row->lowering != Lowering::kPrefix) prefixes.clear();
    at += 2 * (1 + info.caches);
  }
}

class ObserveScope {
 public:
  explicit ObserveScope(std::set<std::string>* names) {
    executed = names;
    g_observe_instruction = note_instruction;
  }
  ~ObserveScope() { g_observe_instruction = nullptr; }
};

std::set<std::string> execute_all_programs() {
  std::set<std::string> names;
  ObserveScope observe(&names);
  for (const std::string& file : kLanguageFiles) {
    for (const LanguageProgram& program : language_programs(file)) {
      for (const LanguageProgram::Call& call : program.calls) {
        check(program.source, call.args);
      }
    }
  }
  return names;
}

TEST(LanguageOpcodes, EveryOpcodeIsExecuted) {
  const std::set<std::string> names = execute_all_programs();
  Ref module = Ref::steal(PyImport_ImportModule("opcode"));
  Ref opmap = Ref::steal(PyObject_GetAttrString(module.get(), "opmap"));
  ASSERT_TRUE(opmap);
  PyObject *key, *value;
  int count = 0;
  for (Py_ssize_t at = 0; PyDict_Next(opmap.get(), &at, &key, &value);) {
    if (PyLong_AsLong(value) > 255) continue;  // the compiler's own
    ++count;
    std::string name = PyUnicode_AsUTF8(key);
    const OpcodeInfo& info = opcode_table()[PyLong_AsLong(value)];
    EXPECT_TRUE(info.row && name == info.row->name) << name << " has no row";
    const char* why_not = why_not_interpreted(name);
    if (names.contains(name)) {
      EXPECT_EQ(why_not, nullptr) << name << " is interpreted after all";
    } else {
      EXPECT_NE(why_not, nullptr) << name << ": no program executes it";
    }
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace framejit::bytecode::testing

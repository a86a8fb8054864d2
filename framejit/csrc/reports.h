// Reports: what FrameJIT did, as text for logs and as Python objects for
// inspect() and explain(). Nothing here changes what is compiled.
#pragma once

#include <string>

#include "frame_hook/program_code.h"
#include "framejit/csrc/jit_entry.h"
#include "guards/result.h"

namespace framejit {

// "f (train.py:12), entry 0": the first that was made is number 0.
std::string describe_entry(PyObject* function, size_t number);
// "train.py:14": the line of the program that the first operation is of, its
// outermost one but for the call of a compiled module. Without operations: the
// function's.
std::string place_of_graph(const std::vector<Span>& stack, PyObject* code);
// Id, title, detail, the user's line, the hint, and the page.
std::string break_report(const Break& brk);
// Counts a break of a function's capture. False: it was told just before, of
// the call of the module whose forward this is.
bool count_break(PyObject* code, const Break& brk);
// Emits the guards, graphs, bytecode and kernels of a new entry to the
// channels that are on, and its breaks.
void log_compilation(PyObject* function, const JitEntry& entry);

// A list of dicts, one per cache entry of the code under these options.
Ref entries_of(PyObject* code, const void* options);
// (function, entries) of every cache of the process that has entries.
Ref all_entries();
// Of every cache: (function, file, line, line behind which it goes on or 0,
// what entries did, why the last capture gave nothing or ""). And of entries
// that are gone.
Ref report_rows();
// Where the report has a function of this code; null: of whatever function.
ReportPlace report_place(PyObject* code, PyObject* function);
// Notes of a new entry where the report will have it when it is gone.
void place_in_report(const CompileRequest& request, JitEntry* entry);

// The guards as a tree of the places they look at, with the user's lines.
std::string guard_tree(const GuardSet& guards, PyObject* code);

// Why a call does not fit an entry: the first guard that failed
// (entry.failed_fact; the number of guards: an input is gone), in the user's
// words, and what to do about it ("" where there is no advice).
struct Miss {
  std::string reason;
  std::string hint;
  std::string text() const;
};
Miss describe_miss(const JitEntry& entry, const CompileRequest& request);

// One entry as inspect() shows it, a dict.
Ref entry_report(PyObject* code, const JitEntry& entry);

}  // namespace framejit

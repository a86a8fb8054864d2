#include "bytecode/objects/remade_functions.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bytecode/code/code_extra.h"
#include "frame_hook/cpython_internals.h"
#include "guards/set/source_text.h"

namespace framejit::bytecode {
namespace {

// Of a capture: those guarded by their parts, and not pinned.
struct RemadeFunctions {
  std::unordered_set<PyObject*> functions;
};

// Of the code that is captured: what came in where, the last few codes.
struct FunctionsSeen {
  static constexpr size_t kMaxCodes = 8;
  struct Seen {
    Ref function, code;  // weak references
    bool remade = false;
  };
  std::unordered_map<std::string, std::vector<Seen>> places;
  size_t generation = 0;
};
size_t generation = 1;

bool leads_to(const Ref& weak, PyObject* object) {
  return weak && internals::weak_referent(weak.get()).get() == object;
}

Ref weak_reference(PyObject* object) {
  Ref weak = Ref::steal(PyWeakref_NewRef(object, nullptr));
  if (!weak) PyErr_Clear();
  return weak;
}

// An argument, or what such a function has in its cells: what comes from
// anywhere else is rarely made anew.
bool is_place_of_functions(const Source* source) {
  for (; source; source = source->base) {
    switch (source->kind) {
      case SourceKind::kArg:
      case SourceKind::kFunction:
        return true;
      case SourceKind::kCellContents:
      case SourceKind::kClosureCell:
        break;
      default:
        return false;
    }
  }
  return false;
}

bool is_remade(CaptureState& state, PyObject* function, const Source* source) {
  PyObject* captured = PyFunction_GET_CODE(state.request.function);
  TableRegistry* extra = code_extra(captured);
  if (!extra) return false;
  auto& seen = extra->get<FunctionsSeen>();
  if (std::exchange(seen.generation, generation) != generation)
    seen.places.clear();
  auto& place = seen.places[source_text(source, captured)];
  PyObject* code = PyFunction_GET_CODE(function);
  auto known = std::find_if(place.begin(), place.end(), [&](const auto& row) {
    return leads_to(row.code, code);
  });
  if (known == place.end()) {
    if (place.size() >= FunctionsSeen::kMaxCodes) place.erase(place.begin());
    place.push_back({weak_reference(function), weak_reference(code), false});
    return false;
  }
  known->remade |= !leads_to(known->function, function);
  known->function = weak_reference(function);
  return known->remade;
}

}  // namespace

bool guard_by_parts(CaptureState& state, PyObject* function,
                    const Source* source) {
  if (!PyFunction_Check(function) || !is_place_of_functions(source))
    return false;
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  // Attributes may mark it for the library or for us.
  if (object->func_dict && PyDict_GET_SIZE(object->func_dict) != 0)
    return false;
  CalleeClass callee = state.tracer.classify_callee(function);
  if (callee != CalleeClass::kNotForeign || !is_remade(state, function, source))
    return false;
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(&PyFunction_Type));
  state.guard(GuardKind::kLength,
              state.guards.sources().make(SourceKind::kInstanceDict, source),
              nullptr, 0);
  state.register_input(function, source);
  state.table<RemadeFunctions>().functions.insert(function);
  return true;
}

bool has_remade(const CaptureState& state) {
  return !state.table<RemadeFunctions>().functions.empty();
}

void forget_functions_seen() { ++generation; }

void pin_remade(CaptureState& state, PyObject* object) {
  if (state.table<RemadeFunctions>().functions.erase(object)) state.pin(object);
}

}  // namespace framejit::bytecode

#include "bytecode/builtins/context_variables.h"

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/write_log.h"
#include "guards/set/source.h"

namespace framejit::bytecode {

namespace {

const Source* source_of_value(CaptureState& state, PyObject* variable) {
  const Source* source = state.source_of(variable);
  if (!source) {
    state.pin(variable);
    source = state.source_of(variable);
  }
  return state.guards.sources().make(SourceKind::kContextValue, source);
}

Result<Ref> context_value(CaptureState& state, PyObject* variable) {
  auto written = state.table<ContextValues>().values.find(variable);
  if (written != state.table<ContextValues>().values.end()) {
    return written->second.first;
  }
  const Source* value_source = source_of_value(state, variable);
  Ref value = evaluate_step(value_source, variable);
  if (!value) return state.after_native(nullptr);
  if (value.get() == no_context_value()) {
    state.guard(GuardKind::kIs, value_source, value.get());
    return Ref();
  }
  return state.wrap(value.get(), value_source);
}

}  // namespace

Result<Ref> model_context_get(BuiltinCall& call) {
  if (!call.plain(1, 2)) return call.native(Reads::kNothing);
  FJ_TRY(Ref value, context_value(call.state, call.args[0]));
  if (value) return value;
  if (call.args.size() > 1) return Ref::borrow(call.args[1]);
  PyErr_SetObject(PyExc_LookupError, call.args[0]);
  return Result<Ref>::raised();
}

Result<Ref> model_context_set(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  FJ_TRY(Ref before, context_value(state, call.args[0]));
  auto [entry, inserted] = state.table<ContextValues>().values.try_emplace(
      call.args[0], Ref(), before);
  if (inserted) {
    state.keep_alive(call.args[0]);
    const Source* source = source_of_value(state, call.args[0]);
    Ref value = evaluate_step(source, call.args[0]);
    if (!value) return state.after_native(nullptr);
    WriteLog::let_go(state, LetGo::kObject, source, value.get(), nullptr);
  }
  entry->second.first = Ref::borrow(call.args[1]);
  return make_opaque(state, OpaqueKind::kToken, call.args[0], before.get());
}

Result<Ref> model_context_reset(BuiltinCall& call) {
  if (!call.plain(2, 2) || !is_opaque(call.args[1], OpaqueKind::kToken) ||
      opaque_object(call.args[1]) != call.args[0]) {
    return call.unknown();
  }
  ContextValues& table = call.state.table<ContextValues>();
  auto entry = table.values.find(call.args[0]);
  if (entry == table.values.end()) return call.unknown();
  // The second time it raises, with the address of the token.
  for (const Ref& used : table.used_tokens) {
    if (used.get() == call.args[1]) return call.unknown();
  }
  table.used_tokens.push_back(Ref::borrow(call.args[1]));
  entry->second.first = Ref::borrow(opaque_other(call.args[1]));
  return none();
}

}  // namespace framejit::bytecode

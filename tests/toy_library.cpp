#include "tests/toy_library.h"

#include <utility>

#include "bytecode/builtins/builtins.h"
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/overrides.h"
#include "guards/known_objects.h"
#include "tests/fake_tracer.h"

namespace framejit::toy {
namespace {

using namespace bytecode;

int native_calls = 0;

// ---- the library, in C

PyObject* toy_double(PyObject*, PyObject* x) {
  ++native_calls;
  return PyNumber_Add(x, x);
}
PyObject* toy_first(PyObject*, PyObject* sequence) {
  ++native_calls;
  return PySequence_GetItem(sequence, 0);
}
PyObject* toy_bare(PyObject*, PyObject*) { Py_RETURN_NONE; }

PyMethodDef kFunctions[] = {{"double", toy_double, METH_O, nullptr},
                            {"first", toy_first, METH_O, nullptr},
                            {"other_double", toy_double, METH_O, nullptr},
                            {"other_first", toy_first, METH_O, nullptr},
                            {"bare", toy_bare, METH_NOARGS, nullptr},
                            {}};

// Tuples that are made of their items, by a type that no class statement made.
PyTypeObject make_tuple_type(const char* name) {
  PyTypeObject type = {};
  type.ob_base.ob_base.ob_refcnt = 1;
  type.tp_name = name;
  type.tp_basicsize = PyTuple_Type.tp_basicsize;
  type.tp_itemsize = PyTuple_Type.tp_itemsize;
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_base = &PyTuple_Type;
  return type;
}
PyTypeObject g_pair = make_tuple_type("toys.Pair");
PyTypeObject g_other_pair = make_tuple_type("toys.OtherPair");

// ---- the library, in Python

constexpr char kSource[] = R"(
from functools import wraps
import fake
from fake import push_mode, pop_mode, has_override, plainly

class Kind:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, x):
        bare()
        return x * self.factor
triple = Kind(3)

class Number:
    def __new__(cls, x):
        bare()
        return x
class Small(Number):
    pass

class Box:
    def __init__(self, **items):
        self.items = items
    def __getattr__(self, name):
        items = self.__dict__['items']
        if name in items:
            return items[name]
        raise AttributeError(name)
class OtherBox:
    def __init__(self, **items):
        self.items = items
    def __getattr__(self, name):
        items = self.__dict__['items']
        if name in items:
            return items[name]
        raise AttributeError(name)
class NewerBox:
    def __init__(self, **items):
        self.items = items
    def __getattr__(self, name):
        items = self.__dict__['items']
        if name in items:
            return sorted([items[name]])[0]
        raise AttributeError(name)

def asks():
    return fake.is_compiling()
def other_asks():
    return fake.is_compiling()

def noted(function):
    def inner(*args):
        bare()
        return function(*args)
    return inner
def other_noted(function):
    def inner(*args):
        bare()
        return function(*args)
    return inner
def attached(function):
    @wraps(function)
    def inner(*args):
        bare()
        return function(*args)
    return inner
def twice_nested(function):
    if function:
        def inner(*args):
            bare()
            return function(*args)
    else:
        def inner(*args):
            bare()
            return function(*args)
    return inner

class Metre(int):
    __slots__ = ()
class Mile(int):
    __slots__ = ()

class Region:
    def __enter__(self):
        bare()
    def __exit__(self, *exception):
        bare()
class OtherRegion(Region):
    pass

class Own:
    def method(self):
        pass
)";

constexpr char kMeanings[] = R"(
def meaning(function, *args):
    return function(*args)
MEANINGS = {'fake.region': meaning}
)";

// ---- what a capture knows of it

Result<Ref> first(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  FJ_TRY(Ref zero, from_api(PyLong_FromLong(0)));
  return call.state.get_item(call.args[0], zero.get());
}

Result<Ref> multiply(BuiltinCall& call) {
  if (!call.plain(1, 1)) return Ref();
  CaptureState& state = call.state;
  state.pin(call.callable);
  FJ_TRY(Ref factor, state.get_attr(call.callable, interned("factor")));
  FJ_TRY(Ref x, prepare(state, call.args[0], Reads::kDeep));
  if (!PyLong_CheckExact(x.get())) return Ref();
  return from_api(PyNumber_Multiply(x.get(), factor.get()));
}

Result<Ref> as_number(BuiltinCall& call) {
  if (!call.plain(1, 1)) return Ref();
  return Ref::borrow(call.args[0]);
}

Result<Ref> push(BuiltinCall& call) {
  push_override_mode(call.state, call.args.at(0));
  return none();
}
Result<Ref> pop(BuiltinCall& call) {
  if (call.state.table<OverrideState>().modes.empty()) return call.unknown();
  return pop_override_mode(call.state);
}
Result<Ref> has(BuiltinCall& call) {
  FJ_TRY(bool found, has_override(call.state, call.args));
  return boolean(found);
}
Result<Ref> call_plainly(BuiltinCall& call) {
  CaptureState& state = call.state;
  Ref function = Ref::borrow(call.args.at(0));
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  switch_overrides_off(state, function.get(), OverrideState::kAsksNobody);
  Result<Ref> result = state.caller.call(function.get(), rest);
  switch_overrides_back(state, function.get());
  return result;
}

constexpr CalleeRow kCallees[] = {
    {"toys", "double", nullptr, Reads::kDeep},
    {"toys", "first", first},
    {"toys", "absent", first},
    {"toys", "Pair", nullptr, Reads::kElements},
    {"toys", "OtherPair", nullptr, Reads::kElements},
    {"toys", "push_mode", push},
    {"toys", "pop_mode", pop},
    {"toys", "has_override", has},
    {"toys", "plainly", call_plainly},
    {"toys_later", "double", nullptr, Reads::kDeep},
};

constexpr FamilyRow kFamilies[] = {
    {"toys", "Kind", FamilyRow::Of::kInstances, multiply},
    {"toys", "Number", FamilyRow::Of::kSubtypes, as_number},
};

// What Box.__getattr__ reads.
Result<Ref> get_from_box(Interpreter& interpreter, PyObject* function,
                         const std::vector<PyObject*>& args, PyObject* kwnames,
                         bool* handled) {
  if (args.size() != 2 || kwnames) return Ref();
  CaptureState& state = interpreter.state;
  FJ_TRY(Ref dict, state.get_attr(args[0], interned("__dict__")));
  FJ_TRY(Ref items, state.dict_get(dict.get(), interned("items")));
  if (!items || !PyDict_CheckExact(items.get())) return Ref();
  FJ_TRY(Ref value, state.dict_get(items.get(), args[1]));
  *handled = static_cast<bool>(value);
  return value;
}
Result<Ref> leave_alone(Interpreter&, PyObject*, const std::vector<PyObject*>&,
                        PyObject*, bool*) {
  return Ref();
}

constexpr const char* kBoxNames[] = {"__dict__", "AttributeError"};
constexpr const char* kAsksNames[] = {"fake", "is_compiling"};
constexpr FastPathRow kFastPaths[] = {
    {"toys", "Box.__getattr__", kBoxNames, get_from_box},
    {"toys", "NewerBox.__getattr__", kBoxNames, get_from_box},
    {"toys", "asks", kAsksNames, leave_alone, false},
};

constexpr WrapperRow kWrappers[] = {
    {"toys", "noted.<locals>.inner", "function"},
    {"toys", "attached.<locals>.inner", nullptr},
    {"toys", "twice_nested.<locals>.inner", "function"},
};

constexpr MarkRow kMarks[] = {
    {"_toy_off", Mark::kWrapper, "toys"},
    {"_toy_off", Mark::kDisabled, nullptr},
    {"_toy_break", Mark::kGraphBreak, nullptr},
    {"_toy_compiling", Mark::kIsCompiling, nullptr},
    {"_toy_constant", Mark::kConstantResult, nullptr},
    {"_toy_without_effects", Mark::kWithoutEffects, nullptr},
};

constexpr DimMarkRow kDimMarks[] = {
    {"_toy_dynamic", DimMarkRow::Kind::kDynamic},
    {"_toy_maybe", DimMarkRow::Kind::kMaybeDynamic},
    {"_toy_static", DimMarkRow::Kind::kStatic},
};

constexpr ConstantTypeRow kConstantTypes[] = {{"toys", "Metre"}};
constexpr TupleTypeRow kTupleTypes[] = {{"toys", "Pair"}};

Result<Ref> enter_region(Interpreter& interpreter, Ref manager) {
  PyObject* nothing = library_object("contextlib", "nullcontext");
  if (!nothing) return Result<Ref>::raised();
  return interpreter.call(nothing, {});
}
constexpr ManagerRow kManagers[] = {{"toys", "Region", enter_region}};

constexpr SubstituteTable kSubstitutes = {"toys_meanings", "MEANINGS"};
constexpr OverrideProtocol kProtocol = {"__fake_function__", "toys"};

constexpr Library kLibrary = {.name = "toys",
                              .callees = kCallees,
                              .families = kFamilies,
                              .fast_paths = kFastPaths,
                              .wrappers = kWrappers,
                              .marks = kMarks,
                              .dim_marks = kDimMarks,
                              .constant_types = kConstantTypes,
                              .tuple_types = kTupleTypes,
                              .managers = kManagers,
                              .substitutes = &kSubstitutes,
                              .overrides = &kProtocol};

bool run_in(PyObject* module, const char* source) {
  PyObject* dict = PyModule_GetDict(module);
  PyDict_SetItemString(dict, "__builtins__", PyEval_GetBuiltins());
  return Ref::steal(PyRun_String(source, Py_file_input, dict, dict)) &&
         PyDict_SetItem(PyImport_GetModuleDict(),
                        PyDict_GetItemString(dict, "__name__"), module) == 0;
}

bool make_modules() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "toys", nullptr, -1,
                                   kFunctions};
  Ref module = Ref::steal(PyModule_Create(&definition));
  Ref meanings = Ref::steal(PyModule_New("toys_meanings"));
  if (!module || !meanings) return false;
  for (auto [name, type] :
       {std::pair("Pair", &g_pair), std::pair("OtherPair", &g_other_pair)}) {
    if (PyType_Ready(type) < 0 ||
        PyModule_AddObjectRef(module.get(), name,
                              reinterpret_cast<PyObject*>(type)) < 0) {
      return false;
    }
  }
  return run_in(module.get(), kSource) && run_in(meanings.get(), kMeanings);
}

}  // namespace

void install() {
  static bool installed = false;
  if (installed) return;
  fake::install();
  if (!make_modules() || !register_library(kLibrary)) {
    Py_FatalError("module toys could not be made");
  }
  installed = true;
}

int take_native_calls() { return std::exchange(native_calls, 0); }

}  // namespace framejit::toy

// Side tables of one capture, shared by the files that implement CaptureState,
// and the small predicates about objects they have in common.
//
// Everything is keyed by identity. Keys stay valid because every object that
// has an entry is kept alive by `kept` until the capture ends. A container of
// the program that was written or read as a whole has a ContainerState: reads
// look at its shadow first (a copy with wrapped contents), then at its overlay
// (keys written so far), then at the object itself, with a guard.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytecode/capture_state.h"

namespace framejit::bytecode {

struct ContainerState {
  Ref shadow;  // copy with wrapped contents; all later reads and writes go here
  Ref overlay;       // dict without a shadow: key -> value, or deleted_marker()
  Ref key_iterator;  // the last iterator over the key list
  bool replaced = false;  // whole content is written back at the end
  bool written = false;
};

struct PairHash {
  size_t operator()(const std::pair<PyObject*, PyObject*>& pair) const {
    return reinterpret_cast<size_t>(pair.first) * 31 +
           (reinterpret_cast<size_t>(pair.second) >> 4);
  }
};
using ObjectPair = std::pair<PyObject*, PyObject*>;

// A key that a cache of functools did not hold when an instruction broke: it
// will, once CPython has run the instruction, so the absence is guarded.
struct MissedKey {
  Ref cache;  // dict
  Ref key;
};

struct CaptureState::Tables {
  std::unordered_map<PyObject*, const Source*> sources;
  std::vector<PyObject*> order;  // inputs in the order they were registered
  std::vector<Ref> kept;
  // Tuples with tensors inside are copied with stand-ins inside.
  std::unordered_map<PyObject*, PyObject*> rebuilt;    // real -> copy
  std::unordered_map<PyObject*, PyObject*> originals;  // copy, shadow -> real
  std::unordered_map<PyObject*, PyObject*> stand_ins;  // real -> stand-in
  std::unordered_map<PyObject*, ContainerState> containers;
  std::unordered_map<PyObject*, Ref> cells;  // written cells: value or marker
  std::unordered_map<ObjectPair, Ref, PairHash> slots;   // object, descriptor
  std::unordered_map<PyObject*, PyObject*> dict_owners;  // dict -> instance
  // mappingproxy of a class's dict -> the class
  std::unordered_map<PyObject*, PyTypeObject*> class_dicts;
  std::unordered_map<ObjectPair, Ref, PairHash> type_lookups;
  // Attributes of classes of the program written: value, or deleted_marker().
  std::unordered_map<ObjectPair, Ref, PairHash> class_writes;
  // The tuples of bases of classes that type.__new__ is making: a class with
  // one of them is fresh though nobody has returned it yet.
  std::vector<PyObject*> bases_in_making;
  // Stand-ins that are keys: that they are different objects is guarded.
  std::vector<PyObject*> tensor_keys;
  // Proxies made in the capture -> the dict behind.
  std::unordered_map<PyObject*, Ref> proxies;
  // Context variables written in the capture: value now, value before (empty:
  // none).
  std::unordered_map<PyObject*, std::pair<Ref, Ref>> context_values;
  // Inputs whose id() was taken, canonical: no two of them may become one.
  std::vector<PyObject*> identities;
  // C iterators of the program -> items taken in this capture; -1: exhausted.
  std::unordered_map<PyObject*, int64_t> advanced;
  // Classes, generators and opaque values made in the capture -> the micro-op
  // of the outermost frame that made them. They cannot be rebuilt after it.
  std::unordered_map<PyObject*, size_t> unbuildable;
  void note_class(PyObject* made, size_t ordinal) {
    kept.push_back(Ref::borrow(made));
    unbuildable[made] = ordinal;
  }
  // Not kept alive: its finally blocks run when the program drops it.
  void note_unbuildable(PyObject* made, size_t ordinal) {
    unbuildable[made] = ordinal;
  }
  // Where the first of them was made that could not be rebuilt; 0: none.
  size_t escaped_at = 0;
  // Lists that effects append to unseen; nobody may look at them meanwhile.
  struct EffectList {
    Ref list;
    const Source* source;
    size_t ordinal;
  };
  std::vector<EffectList> effect_lists;
  std::vector<MissedKey> missed_keys;
  Ref cached_calls;  // dict: results of lru_cache functions in this capture
  // torch's __torch_function__ as the capture has it (torch_functions.h): 1:
  // classes of tensors are not asked, 2: modes neither; modes entered here.
  int functions_disabled = 0;
  std::vector<Ref> function_modes;
  // Where the capture left the state of the call; 0: it did not.
  size_t functions_changed_at = 0;
  // DisableTorchFunctionSubclass objects entered -> what was before.
  std::unordered_map<PyObject*, int> functions_before;
  std::vector<Ref> trampolines;
  std::optional<Break> native_break;
};

// ---- predicates on objects (origins.cpp)
// Stands for "deleted" and "absent" in tables. Never reaches the program.
PyObject* deleted_marker();
// Immutable all the way down, and compared by value in a guard.
bool is_builtin_constant(PyObject* object);
// Kinds of objects guarded by identity when they are read: functions, types,
// modules, C functions, descriptors, enum members, immutable subclasses.
bool is_guarded_by_identity(PyObject* object);
// int | str, list[int]: immutable objects of C.
bool is_type_form(PyObject* object);
// A C method bound to an object: [].append, [].__len__.
bool is_bound_c_method(PyObject* object);
bool is_method_wrapper(PyObject* object);
// Tensor.shape.__get__: bound to what never changes.
bool is_method_of_descriptor(PyObject* object);
// Only argument and container steps: the part of the program's data that
// `dynamic=True` speaks of (attributes of modules stay static).
bool is_argument_path(const Source* source);
bool is_heap_type(PyTypeObject* type);
// dict, list, set, deque and their subclasses.
bool is_container(PyObject* object);
// Is `object` a stand-in or a symbolic value?
bool is_foreign(CaptureState& state, PyObject* object);
bool is_symbolic(CaptureState& state, PyObject* object);
bool is_symbolic_float(CaptureState& state, PyObject* object);
bool is_stand_in(CaptureState& state, PyObject* object);
// Hash and equality of this key never run Python code, and its value (or
// identity) is a guarded fact.
bool is_safe_key(CaptureState& state, PyObject* key);
// If it is a class: guards what its repr shows.
Status guard_class_text(CaptureState& state, PyObject* object);
// Guards how the class of a key hashes and compares.
void guard_key_class(CaptureState& state, PyObject* key);
// Hashed and compared by identity, which is no guarded fact: a fresh set of
// such objects answers `in` element by element.
bool is_identity_key(CaptureState& state, PyObject* key);
// A tensor as the key of a fresh set or dict: tensors are hashed by identity,
// so what counts is which of them are one object. False: not a stand-in.
bool note_tensor_key(CaptureState& state, PyObject* key);
// A tensor that is hashed by its identity, without asking its class.
bool is_tensor_key(CaptureState& state, PyObject* key);
// A tensor as the key of a dict of the program: guards that it is this very
// object in the next call. False: not a stand-in.
bool pin_tensor_key(CaptureState& state, PyObject* key);
// Guards that the tensors noted are as many objects as now.
void guard_tensor_keys(CaptureState& state);
// Adds to a fresh set: whether an element hashed by identity is one of those
// already there is asked, and guarded.
Status add_to_fresh_set(CaptureState& state, PyObject* set, PyObject* element);
// Is the key one that a fresh dict may be asked for natively? Guards what the
// answer depends on.
Status check_fresh_dict_key(CaptureState& state, PyObject* dict, PyObject* key);
// An int, float or str of a subclass (IntEnum) as a plain one; else itself.
Result<Ref> plain_scalar(PyObject* object);
// A C descriptor of another name than the slot it was put into.
bool has_other_name(PyObject* raw, const char* name);
// The class attribute as CPython finds it, with no guard. Borrowed or null.
PyObject* raw_lookup(PyTypeObject* type, const char* name);
// A class made in this capture.
bool is_fresh_class(CaptureState& state, PyObject* type);
// The C type that an instance's layout starts with. It may be a heap type:
// extension modules make those, and they are not built by object.__new__.
PyTypeObject* solid_base(PyTypeObject* type);
// The class's own dict (static types keep it per interpreter from 3.12 on).
Ref own_dict(PyTypeObject* type);
// A unicode object that lives forever.
PyObject* interned(const char* text);
// An attribute of an importable module, looked up once ("collections.deque").
// Borrowed, or null with an error set.
PyObject* library_object(const char* module, const char* name);

// ---- what C code may see (containers.cpp)
enum class Reads : uint8_t {
  kNothing,   // the callee keeps or compares the identity only
  kElements,  // looks at the elements (one level), not into them
  kDeep,      // looks at values: compares, formats, hashes them
};
// `object` as C code may have it: shadows for input containers, concrete
// values for symbolic ones; Break UnguardableInput for what no guard covers.
Result<Ref> prepare(CaptureState& state, PyObject* object, Reads reads);
// A callable for C code that comes back into the interpreter.
Result<Ref> trampoline(CaptureState& state, PyObject* callable);
// What else a trampoline does with the result.
enum class TrampolineResult : uint8_t {
  kAsIs,
  kTruth,  // its truth, asked by the interpreter
  kPlain,  // as C code may compare it
};
Result<Ref> trampoline(CaptureState& state, PyObject* callable,
                       TrampolineResult result);
PyObject* trampoline_callable(PyObject* object);  // null: is none
// Lazy map/filter, user iterators, iteration by __getitem__ (function: the
// object) and iter(function, sentinel), as C-visible iterators.
enum class IteratorKind : uint8_t {
  kMap,
  kFilter,
  kUser,
  kSequence,
  kCallable
};
Result<Ref> make_iterator(CaptureState& state, IteratorKind kind,
                          PyObject* function, std::vector<Ref> iterators);
struct ModelIterator;
ModelIterator* as_model_iterator(PyObject* object);  // null: is none
IteratorKind model_iterator_kind(const ModelIterator* iterator);
PyObject* model_iterator_function(const ModelIterator* iterator);
const std::vector<Ref>& model_iterator_sources(const ModelIterator* iterator);
// kSequence: the next index; -1 when exhausted (kCallable, too).
Py_ssize_t model_iterator_index(const ModelIterator* iterator);
Result<Ref> model_iterator_next(CaptureState& state, ModelIterator* iterator);
// A C iterator of the program whose next items can be guarded.
bool is_readable_iterator(PyObject* iterator);
// Its next item (empty: exhausted); advancing it goes to the write log.
Result<Ref> next_of_input(CaptureState& state, PyObject* iterator);

// What C code may iterate instead of `object` (shadow, or an iterator that
// comes back into the interpreter).
Result<Ref> native_iterable(CaptureState& state, PyObject* object);
// The dict behind a mappingproxy made in the capture; null: is none.
PyObject* proxied(CaptureState& state, PyObject* object);
// An index or slice with concrete numbers.
Result<Ref> concrete_index(CaptureState& state, PyObject* index);
// KeyError(key)
void raise_key_error(PyObject* key);

// ---- write log (write_log.cpp)
// Containers of the program other than dicts: logs the operation (or marks the
// content as replaced) and repeats it on the shadow.
class WriteLog {
 public:
  static void add(CaptureState& state, Write::Kind kind, PyObject* object,
                  PyObject* key = nullptr, PyObject* value = nullptr);
  // The whole content will be written back from the shadow.
  static void replace_content(CaptureState& state, PyObject* container);
};

// ---- attributes
// Cls.name as a source.
const Source* class_source(CaptureState& state, PyTypeObject* type,
                           PyObject* name);
// A number of a class that had another value in an earlier call.
bool is_dynamic_class_number(CaptureState& state, PyObject* value,
                             PyTypeObject* type, PyObject* name);
// What the class finds after the writes of this capture; raw: before them.
Ref written_class_attr(CaptureState& state, PyTypeObject* type, PyObject* name,
                       const Ref& raw);
bool is_written_class_attr(CaptureState& state, PyTypeObject* type,
                           PyObject* name);
// An attribute of a class of the program that is plain data (null: delete).
Status set_class_attr(CaptureState& state, PyObject* type, PyObject* name,
                      PyObject* value);
bool is_enum_member(PyObject* object);
Result<Ref> bind_descriptor(CaptureState& state, PyObject* descriptor,
                            PyObject* object, PyTypeObject* type,
                            PyObject* name);
Result<Ref> type_attr(CaptureState& state, PyTypeObject* type, PyObject* name);
// type.__dict__[name] of a class dict that was read as an object; guarded by
// what the class finds. Empty: absent.
Result<Ref> class_dict_get(CaptureState& state, PyTypeObject* type,
                           PyObject* name);
// object.__getattribute__: empty when absent.
Result<Ref> generic_attr(CaptureState& state, PyObject* object, PyObject* name);
Status generic_set_attr(CaptureState& state, PyObject* object, PyObject* name,
                        PyObject* value);  // null value: delete
void raise_no_attribute(CaptureState& state, PyObject* object, PyObject* name);
// type.__call__: __new__ and __init__ as CPython runs them.
Result<Ref> call_type(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames);
// A native call with prepared arguments.
Result<Ref> call_native(CaptureState& state, PyObject* callable,
                        const std::vector<PyObject*>& args, PyObject* kwnames,
                        Reads reads);

}  // namespace framejit::bytecode

// Classes: what look-ups in them find, what the capture wrote to them, and
// which of them the capture made itself.
#pragma once

#include <unordered_map>
#include <vector>

#include "bytecode/objects/capture_state.h"
#include "frame_hook/cpython_internals.h"

namespace framejit::bytecode {

struct PairHash {
  size_t operator()(const std::pair<PyObject*, PyObject*>& pair) const {
    return reinterpret_cast<size_t>(pair.first) * 31 +
           (reinterpret_cast<size_t>(pair.second) >> 4);
  }
};
using ObjectPair = std::pair<PyObject*, PyObject*>;
using ObjectPairMap = std::unordered_map<ObjectPair, Ref, PairHash>;

// (class, name) -> what its MRO gave; what its own dict has. Guarded.
struct TypeLookups {
  ObjectPairMap found, own;
};
// Attributes of classes of the program written: value, or deleted_marker().
struct ClassWrites {
  ObjectPairMap values;
};
// mappingproxy of a class's dict -> the class
struct ClassDicts {
  std::unordered_map<PyObject*, PyTypeObject*> classes;
};
// The tuples of bases of classes that type.__new__ is making: a class with
// one of them is fresh though nobody has returned it yet.
struct ClassesInMaking {
  std::vector<PyObject*> bases;
};

// ---- without guards
bool is_heap_type(PyTypeObject* type);
// The class attribute as CPython finds it. Borrowed or null.
PyObject* raw_lookup(PyTypeObject* type, const char* name);
// The C type that an instance's layout starts with. It may be a heap type:
// extension modules make those, and they are not built by object.__new__.
PyTypeObject* solid_base(PyTypeObject* type);
using internals::own_dict;
// A C descriptor of another name than the slot it was put into.
bool has_other_name(PyObject* raw, const char* name);
// False: native methods and slots of C, which need no origin of their own.
bool needs_pin(PyObject* raw);
// A class made in this capture.
// "No" of an abstract class holds until some class is registered with one; the
// registry never takes a "yes" back.
Status guard_abc_registry(CaptureState& state);
bool is_fresh_class(CaptureState& state, PyObject* type);

// ---- guarded
// Cls.name as a source.
const Source* class_source(CaptureState& state, PyTypeObject* type,
                           PyObject* name);
// A number of a class that had another value in an earlier call.
bool is_dynamic_class_number(CaptureState& state, PyObject* value,
                             PyTypeObject* type, PyObject* name);
// Which class has what a look-up in `type` finds, after the writes of this
// capture. Null owner: none.
struct ClassPlace {
  PyTypeObject* owner = nullptr;
  Ref value;
  bool made_here = false;  // written, or of a class of this capture
};
// From this place of the MRO on. Guarded: the MRO, and which of its classes
// have the name.
Result<ClassPlace> find_place(CaptureState& state, PyTypeObject* type,
                              PyObject* name, Py_ssize_t start = 0);
// Is there more to a look-up than what the program's classes say: did the
// capture write to one of the MRO, or make the class?
bool is_changed_here(CaptureState& state, PyTypeObject* type, PyObject* name);
// Has the class's own dict the name, when the call begins? Guarded. Borrowed.
Result<PyObject*> own_attribute(CaptureState& state, PyTypeObject* type,
                                PyObject* name);
// An attribute of a class of the program that is plain data (null: delete).
Status set_class_attr(CaptureState& state, PyObject* type, PyObject* name,
                      PyObject* value);
// type.__dict__[name] of a class dict that was read as an object; guarded by
// what the class finds. Empty: absent.
Result<Ref> class_dict_get(CaptureState& state, PyTypeObject* type,
                           PyObject* name);
// The keys of a class's dict in order, as a tuple; guarded.
Result<Ref> class_names(CaptureState& state, PyTypeObject* type);
// An answer came from the class of a class, which may become another one where
// Python made that. (Of objects that are no classes their type is guarded.)
void guard_metaclass(CaptureState& state, PyObject* type);
// An answer came from the MRO of `type`, which assigning __bases__ changes.
void guard_mro(CaptureState& state, PyObject* type);
// Is there a value in the class's own dict that no look-up has read, and whose
// type is all that matters when another takes its place? Guards that it is.
Result<bool> replaces_plain_attribute(CaptureState& state, PyTypeObject* type,
                                      PyObject* name);
// If it is a class: guards what its repr shows.
Status guard_class_text(CaptureState& state, PyObject* object);

}  // namespace framejit::bytecode

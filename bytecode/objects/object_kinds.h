// What kind of object this is: the questions that many files ask.
//
// None of them runs code of the program. Those about stand-ins and symbolic
// values ask the tracer, the others only the object's type.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Immutable all the way down, and compared by value in a guard.
bool is_builtin_constant(PyObject* object);
// Kinds of objects guarded by identity when they are read: functions, types,
// modules, C functions, descriptors, enum members, immutable subclasses.
bool is_guarded_by_identity(PyObject* object);
// int | str, list[int]: immutable objects of C.
bool is_type_form(PyObject* object);
bool is_enum_member(PyObject* object);
// A C method bound to an object: [].append, [].__len__.
bool is_bound_c_method(PyObject* object);
bool is_method_wrapper(PyObject* object);
// Tensor.shape.__get__: bound to what never changes.
bool is_method_of_descriptor(PyObject* object);
// dict, list, set, deque and their subclasses: those that have a shadow.
bool is_container(PyObject* object);
// operator.itemgetter, attrgetter, methodcaller.
bool is_getter(PyObject* object);
// time.struct_time, torch.return_types.max: its `__new__` in C takes the items,
// and may have room for more than the sequence shows.
bool is_struct_sequence(PyTypeObject* type);
// re.Pattern, re.Match: what they were made of is constant.
bool is_regular_expression(PyTypeObject* type);
// None, True, an exact int ...: things whose `is` says what `==` says.
bool is_singleton(PyObject* object);
// One of the ints that CPython makes only once.
bool is_small_int(PyObject* object);

// Is `object` a stand-in or a symbolic value?
bool is_foreign(CaptureState& state, PyObject* object);
bool is_symbolic(CaptureState& state, PyObject* object);
bool is_symbolic_float(CaptureState& state, PyObject* object);
bool is_stand_in(CaptureState& state, PyObject* object);

// An int, float or str of a subclass (IntEnum) as a plain one; else itself.
Result<Ref> plain_scalar(PyObject* object);

}  // namespace framejit::bytecode

// Attributes: CPython's protocol, with a guard for every fact it looks at.
// (attributes.cpp reads, attributes_bind.cpp binds descriptors,
// attributes_set.cpp writes.)
#pragma once

#include <unordered_map>

#include "bytecode/objects/classes.h"

namespace framejit::bytecode {

// (object, descriptor) of a __slots__ member written: value, or
// deleted_marker().
struct SlotWrites {
  ObjectPairMap values;
};
// An instance's dict -> the instance.
struct InstanceDicts {
  std::unordered_map<PyObject*, PyObject*> owners;
};

// Says where `dict`, that of the input `owner` at `source`, is found again.
void register_instance_dict(CaptureState& state, PyObject* dict,
                            PyObject* owner, const Source* source);
// The dict that the attributes are in, empty: none. Attribute reads and writes
// use it natively whatever its class, so none is guarded; what shows the dict
// itself to the program asks CaptureState::instance_dict().
Result<Ref> attribute_dict(CaptureState& state, PyObject* object);
// Whether a class attribute is a descriptor is up to its class, which may
// become another one or get these methods: whoever looks at the slots asks here
// first. `type`: where it was found by `name`.
Status know_descriptor(CaptureState& state, PyObject* raw, PyTypeObject* type,
                       PyObject* name);
// For C code that asks whether the object can be called.
Status know_callable(CaptureState& state, PyObject* object);
Result<Ref> bind_descriptor(CaptureState& state, PyObject* descriptor,
                            PyObject* object, PyTypeObject* type,
                            PyObject* name);
Result<Ref> type_attr(CaptureState& state, PyTypeObject* type, PyObject* name);
// object.__getattribute__ of a tensor: the AttributeError when absent.
Result<Ref> tensor_attr_of_object(CaptureState& state, PyObject* stand_in,
                                  PyObject* name);
// object.__getattribute__: empty when absent.
Result<Ref> generic_attr(CaptureState& state, PyObject* object, PyObject* name);
Status generic_set_attr(CaptureState& state, PyObject* object, PyObject* name,
                        PyObject* value);  // null value: delete
// As C code asks that takes an AttributeError, whoever raised it, for absence
// (_PyObject_LookupAttr): empty when absent. CaptureState::find_attr() says so
// of absence that nobody raised, and hands on what __getattr__ raised.
Result<Ref> maybe_attr(CaptureState& state, PyObject* object, PyObject* name);
// Without the name and the object: that is PyObject_GetAttr()'s to say.
void raise_no_attribute(CaptureState& state, PyObject* object, PyObject* name);
// CaptureState::get_attr() as a call looks a method up: what a property raises
// there is left as it is (_PyObject_GetMethod).
Result<Ref> load_method(CaptureState& state, PyObject* object, PyObject* name);

}  // namespace framejit::bytecode

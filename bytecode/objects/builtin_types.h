// Builtin types: what a capture knows of each is a row of builtin_types.def, a
// column per question. Who answers a question has its column of functions:
//
//   static constexpr Shadow kShadows[] = {
//   #define FJ_TYPE(name, type, parts, identity, prepare, shadow, ...) shadow,
//   #include "bytecode/objects/builtin_types.def"
//   };
//   kShadows[size_t(builtin_base(Py_TYPE(object)))](...)
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace framejit::bytecode {

enum class BuiltinType : uint8_t {
#define FJ_TYPE(name, ...) k##name,
#include "bytecode/objects/builtin_types.def"
};

// The row of this very type; kOther: it has none.
BuiltinType builtin_type(PyTypeObject* type);
// The first row in the MRO of the type.
BuiltinType builtin_base(PyTypeObject* type);

}  // namespace framejit::bytecode

// Paths in the user's words.
#include <algorithm>
#include <string_view>

#include "guards/object_text.h"
#include "guards/source.h"

namespace framejit {
namespace {

// The name of a bound parameter slot: co_varnames has them in slot order.
std::string slot_name(PyObject* code, int64_t index) {
  if (code && PyCode_Check(code)) {
    Ref names =
        Ref::steal(PyCode_GetVarnames(reinterpret_cast<PyCodeObject*>(code)));
    if (names && index >= 0 && index < PyTuple_GET_SIZE(names.get()))
      return string_text(PyTuple_GET_ITEM(names.get(), index));
    PyErr_Clear();
  }
  return "arg" + std::to_string(index);
}

std::string free_name(PyObject* code, int64_t index) {
  if (code && PyCode_Check(code)) {
    Ref names =
        Ref::steal(PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(code)));
    if (names && index >= 0 && index < PyTuple_GET_SIZE(names.get()))
      return string_text(PyTuple_GET_ITEM(names.get(), index));
    PyErr_Clear();
  }
  return "cell" + std::to_string(index);
}

bool is_key(const Source* source, const char* name) {
  return source->kind == SourceKind::kInstanceAttr && source->key &&
         PyUnicode_Check(source->key.get()) &&
         PyUnicode_CompareWithASCIIString(source->key.get(), name) == 0;
}

// Modules keep submodules, parameters and buffers in dicts of their own: write
// self.layers[0].weight, as the user does.
bool module_item(const Source* source, PyObject* code, std::string* out) {
  const Source* dict = source->base;
  if (!dict->base || !source->key || !PyUnicode_Check(source->key.get()) ||
      !(is_key(dict, "_modules") || is_key(dict, "_parameters") ||
        is_key(dict, "_buffers")))
    return false;
  std::string name = string_text(source->key.get());
  std::string owner = source_text(dict->base, code);
  bool number = !name.empty() &&
                name.find_first_not_of("0123456789") == std::string::npos;
  *out = number ? owner + "[" + name + "]" : owner + "." + name;
  return true;
}

// What lies on no path through the program's objects (bytecode/fact_object.h).
std::string fact_text(const Source* source) {
  const Source* base = source->base;
  if (base->kind != SourceKind::kConst ||
      std::string_view(Py_TYPE(base->key.get())->tp_name) != "framejit.Fact")
    return "";
  std::string text = string_text(source->key.get());
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

std::string source_text(const Source* source, PyObject* code) {
  ErrorGuard keep_error;
  auto base = [&] { return source_text(source->base, code); };
  auto indexed = [&] {
    return base() + "[" + std::to_string(source->index) + "]";
  };
  auto called = [&](const char* name) {
    return std::string(name) + "(" + base() + ")";
  };
  std::string index = std::to_string(source->index);
  std::string text;
  switch (source->kind) {
    case SourceKind::kArg:
      return slot_name(code, source->index);
    case SourceKind::kFunction:
      return "function";
    case SourceKind::kConst:
      return object_text(source->key.get());
    case SourceKind::kGlobals:
      if (source->base->kind == SourceKind::kFunction) return "globals";
      return base() + ".__globals__";
    case SourceKind::kBuiltins:
      if (source->base->kind == SourceKind::kFunction) return "builtins";
      return base() + ".__builtins__";
    case SourceKind::kClosureCell:
      if (source->base->kind == SourceKind::kFunction)
        return "cell " + free_name(code, source->index);
      return base() + ".__closure__[" + index + "]";
    case SourceKind::kCellContents:
      // A closure variable reads as its name.
      if (source->base->kind == SourceKind::kClosureCell &&
          source->base->base->kind == SourceKind::kFunction)
        return free_name(code, source->base->index);
      return base() + ".cell_contents";
    case SourceKind::kDefault:
      return base() + ".__defaults__[" + index + "]";
    case SourceKind::kKwDefault:
      return base() + ".__kwdefaults__[" + object_text(source->key.get()) + "]";
    case SourceKind::kFunctionCode:
      return base() + ".__code__";
    case SourceKind::kInstanceDict:
      return base() + ".__dict__";
    case SourceKind::kInstanceAttr:
    case SourceKind::kSlotMember:
    case SourceKind::kGetSet:
    case SourceKind::kTypeAttr:
      if (std::string fact = fact_text(source); !fact.empty()) return fact;
      return base() + "." + string_text(source->key.get());
    case SourceKind::kTypeOf:
      return called("type");
    case SourceKind::kDictItem:
      if (module_item(source, code, &text)) return text;
      if (source->base->kind == SourceKind::kGlobals &&
          source->base->base->kind == SourceKind::kFunction &&
          PyUnicode_Check(source->key.get()))
        return "global " + string_text(source->key.get());
      return base() + "[" + object_text(source->key.get()) + "]";
    case SourceKind::kDictKeyAt:
      return called("list") + "[" + index + "]";
    case SourceKind::kListItem:
    case SourceKind::kTupleItem:
    case SourceKind::kDequeItem:
      return indexed();
    case SourceKind::kMethodSelf:
      return base() + ".__self__";
    case SourceKind::kMethodFunc:
      return base() + ".__func__";
    case SourceKind::kWeakReferent:
      return base() + "()";
    case SourceKind::kPartialPart: {
      static const char* const kNames[] = {".func", ".args", ".keywords"};
      return base() +
             kNames[source->index >= 0 && source->index < 3 ? source->index
                                                            : 0];
    }
    case SourceKind::kPropertyFunc: {
      static const char* const kNames[] = {".fget", ".fset", ".fdel"};
      return base() +
             kNames[source->index >= 0 && source->index < 3 ? source->index
                                                            : 0];
    }
    case SourceKind::kContextValue:
      return base() + ".get()";
    case SourceKind::kIterPart:
      return base() + "[part " + index + "]";
    case SourceKind::kIterItem:
    case SourceKind::kIterNumber:
      return "next(" + base() + ")";
    case SourceKind::kTensorGrad:
      return base() + ".grad";
    case SourceKind::kTensorSize:
      return base() + ".size(" + index + ")";
    case SourceKind::kTensorStride:
      return base() + ".stride(" + index + ")";
    case SourceKind::kTensorOffset:
      return base() + ".storage_offset()";
    case SourceKind::kIntValue:
    case SourceKind::kFloatBits:
      return base();
    case SourceKind::kCount:
      break;
  }
  return "?";
}

}  // namespace framejit

// Paths in the user's words.
#include <algorithm>
#include <string_view>
#include <utility>

#include "frame_hook/argument_binding.h"
#include "frame_hook/follower.h"
#include "frame_hook/interjections.h"
#include "frame_hook/line_table.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/program_code.h"
#include "guards/set/object_text.h"
#include "guards/set/source_text.h"

namespace framejit {
namespace {

// What the rest of a function is given of the stack has no name in the program
// (bytecode/residual): "value 0 held at line 12".
constexpr std::string_view kHeldPrefix = ".s";

std::string held_text(PyObject* code, const std::string& slot) {
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  int line = 0;
  for (Py_ssize_t at = 0; at < Py_SIZE(object) && line <= 0; ++at)
    line = PyCode_Addr2Line(object, int(at) * kCodeUnitBytes);
  if (line <= 0 || stands_for_other(code))
    line = reinterpret_cast<PyCodeObject*>(program_code(code).get())
               ->co_firstlineno;
  return "value " + slot.substr(kHeldPrefix.size()) + " held at line " +
         std::to_string(line);
}

// The name of a bound parameter slot: co_varnames has them in slot order.
std::string slot_name(PyObject* code, int64_t index) {
  if (code && PyCode_Check(code)) {
    Ref names =
        Ref::steal(PyCode_GetVarnames(reinterpret_cast<PyCodeObject*>(code)));
    if (names && index >= 0 && index < PyTuple_GET_SIZE(names.get())) {
      std::string name = string_text(PyTuple_GET_ITEM(names.get(), index));
      return name.starts_with(kHeldPrefix) ? held_text(code, name) : name;
    }
    drop_error();
  }
  return "arg" + std::to_string(index);
}

// The slots of code that passes its arguments on to a function of the program:
// fun(object, *args, **kwargs), or without the object.
int64_t positional_slot(PyObject* code) {
  return reinterpret_cast<PyCodeObject*>(code)->co_argcount;
}
int64_t keywords_slot(PyObject* code) { return positional_slot(code) + 1; }

// What the function calls them.

// "x", or "rest[0]" behind the parameters; "": not an argument of its own.
std::string passed_text(const Source* source, PyObject* code) {
  if (source->base->kind != SourceKind::kArg) return "";
  Argument argument = argument_of(source, code);
  if (!argument.code || argument.code.get() == code) return "";
  auto* program = reinterpret_cast<PyCodeObject*>(argument.code.get());
  if (argument.slot >= 0) return slot_name(argument.code.get(), argument.slot);
  int next = program->co_argcount + program->co_kwonlyargcount;
  bool takes_rest = program->co_flags & CO_VARARGS;
  if (source->base->index == positional_slot(code) && takes_rest) {
    return slot_name(argument.code.get(), next) + "[" +
           std::to_string(source->index + first_passed_parameter(code) -
                          program->co_argcount) +
           "]";
  }
  if (source->base->index == keywords_slot(code) &&
      program->co_flags & CO_VARKEYWORDS) {
    return slot_name(argument.code.get(), next + takes_rest) + "[" +
           object_text(source->key.get()) + "]";
  }
  return "";
}

std::string free_name(PyObject* code, int64_t index) {
  if (code && PyCode_Check(code)) {
    Ref names =
        Ref::steal(PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(code)));
    if (names && index >= 0 && index < PyTuple_GET_SIZE(names.get()))
      return string_text(PyTuple_GET_ITEM(names.get(), index));
    drop_error();
  }
  return "cell" + std::to_string(index);
}

bool is_key(const Source* source, const char* name) {
  return source->kind == SourceKind::kInstanceAttr && source->key &&
         PyUnicode_Check(source->key.get()) &&
         PyUnicode_CompareWithASCIIString(source->key.get(), name) == 0;
}

// The texts of the base, and of the base's base. (A path is as long as the
// program's objects are deep: no recursion.)
struct Beneath {
  PyObject* code;
  std::string base;
  std::string owner;
};

// Modules keep submodules, parameters and buffers in dicts of their own: write
// self.layers[0].weight, as the user does.
bool module_item(const Source* source, const Beneath& beneath,
                 std::string* out) {
  const Source* dict = source->base;
  if (!dict->base || !source->key || !PyUnicode_Check(source->key.get()) ||
      !(is_key(dict, "_modules") || is_key(dict, "_parameters") ||
        is_key(dict, "_buffers")))
    return false;
  std::string name = string_text(source->key.get());
  const std::string& owner = beneath.owner;
  bool number = !name.empty() &&
                name.find_first_not_of("0123456789") == std::string::npos;
  *out = number ? owner + "[" + name + "]" : owner + "." + name;
  return true;
}

PyTypeObject* g_fact_type = nullptr;

// What lies on no path through the program's objects.
std::string fact_text(const Source* source) {
  const Source* base = source->base;
  if (base->kind != SourceKind::kConst ||
      Py_TYPE(base->key.get()) != g_fact_type)
    return "";
  std::string text = string_text(source->key.get());
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

// ---- by kind (source_kinds.def)
std::string index_text(const Source* source) {
  return "[" + std::to_string(source->index) + "]";
}

bool is_of_function(const Source* source) {
  return source->base->kind == SourceKind::kFunction;
}

std::string argument_text(const Source* source, const Beneath& beneath) {
  PyObject* code = beneath.code;
  if (code && PyCode_Check(code) && passes_arguments_on(code)) {
    if (source->index == positional_slot(code)) return "positional arguments";
    if (source->index == keywords_slot(code)) return "keyword arguments";
    return first_passed_parameter(code) > 0
               ? slot_name(program_code(code).get(), 0)
               : "module";
  }
  return slot_name(code, source->index);
}

std::string function_text(const Source*, const Beneath&) { return "function"; }

std::string constant_text(const Source* source, const Beneath&) {
  return object_text(source->key.get());
}

std::string globals_text(const Source* source, const Beneath& beneath) {
  if (is_of_function(source)) return "globals";
  return beneath.base + ".__globals__";
}

std::string builtins_text(const Source* source, const Beneath& beneath) {
  if (is_of_function(source)) return "builtins";
  return beneath.base + ".__builtins__";
}

std::string cell_text(const Source* source, const Beneath& beneath) {
  if (is_of_function(source))
    return "cell " + free_name(beneath.code, source->index);
  return beneath.base + ".__closure__" + index_text(source);
}

std::string cell_contents_text(const Source* source, const Beneath& beneath) {
  // A closure variable reads as its name.
  if (source->base->kind == SourceKind::kClosureCell &&
      is_of_function(source->base))
    return free_name(beneath.code, source->base->index);
  return beneath.base + ".cell_contents";
}

std::string default_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__defaults__" + index_text(source);
}

std::string keyword_default_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__kwdefaults__[" + object_text(source->key.get()) +
         "]";
}

std::string code_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__code__";
}

std::string instance_dict_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__dict__";
}

std::string attribute_text(const Source* source, const Beneath& beneath) {
  if (std::string fact = fact_text(source); !fact.empty()) return fact;
  std::string name = string_text(source->key.get());
  // To the user it is the same module.
  if (name == kFollowerOriginal) return beneath.base;
  return beneath.base + "." + name;
}

std::string type_text(const Source* source, const Beneath& beneath) {
  return "type(" + beneath.base + ")";
}

std::string dict_item_text(const Source* source, const Beneath& beneath) {
  std::string text = passed_text(source, beneath.code);
  if (!text.empty() || module_item(source, beneath, &text)) return text;
  if (source->base->kind == SourceKind::kGlobals &&
      is_of_function(source->base) && PyUnicode_Check(source->key.get()))
    return "global " + string_text(source->key.get());
  return beneath.base + "[" + object_text(source->key.get()) + "]";
}

std::string dict_key_text(const Source* source, const Beneath& beneath) {
  return "list(" + beneath.base + ")" + index_text(source);
}

std::string item_text(const Source* source, const Beneath& beneath) {
  std::string text = passed_text(source, beneath.code);
  if (!text.empty()) return text;
  return beneath.base + index_text(source);
}

std::string method_self_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__self__";
}

std::string method_function_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".__func__";
}

std::string called_text(const Source* source, const Beneath& beneath) {
  return beneath.base + "()";
}

std::string part_text(const Source* source, const Beneath& beneath,
                      const char* const (&names)[3]) {
  bool known = source->index >= 0 && source->index < 3;
  return beneath.base + names[known ? source->index : 0];
}

std::string partial_part_text(const Source* source, const Beneath& beneath) {
  return part_text(source, beneath, {".func", ".args", ".keywords"});
}

std::string property_part_text(const Source* source, const Beneath& beneath) {
  return part_text(source, beneath, {".fget", ".fset", ".fdel"});
}

std::string context_value_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".get()";
}

std::string iterator_part_text(const Source* source, const Beneath& beneath) {
  return beneath.base + "[part " + std::to_string(source->index) + "]";
}

std::string next_text(const Source* source, const Beneath& beneath) {
  return "next(" + beneath.base + ")";
}

std::string gradient_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".grad";
}

std::string size_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".size(" + std::to_string(source->index) + ")";
}

std::string stride_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".stride(" + std::to_string(source->index) + ")";
}

std::string offset_text(const Source* source, const Beneath& beneath) {
  return beneath.base + ".storage_offset()";
}

std::string length_text(const Source* source, const Beneath& beneath) {
  return text_of_length(beneath.base);
}

std::string number_text(const Source* source, const Beneath& beneath) {
  return beneath.base;
}

}  // namespace

void set_fact_type(PyTypeObject* type) { g_fact_type = type; }

std::string text_of_length(const std::string& container) {
  return "len(" + container + ")";
}

Argument argument_of(const Source* source, PyObject* code) {
  if (!code || !PyCode_Check(code)) return {};
  Ref program = program_code(code);
  const Source* root = source;
  const Source* item = nullptr;  // the first step from the root
  for (; root->base; root = root->base) item = root;
  if (root->kind != SourceKind::kArg) return {};
  if (!passes_arguments_on(code))
    return {Ref::borrow(code), static_cast<int>(root->index)};
  int first = first_passed_parameter(code);
  if (root->index < positional_slot(code)) {
    if (first == 0) return {};
    return {std::move(program), 0};
  }
  if (!item) return {};
  auto* object = reinterpret_cast<PyCodeObject*>(program.get());
  int slot = -1;
  if (root->index == positional_slot(code) &&
      item->kind == SourceKind::kTupleItem &&
      item->index + first < object->co_argcount)
    slot = static_cast<int>(item->index) + first;
  if (root->index == keywords_slot(code) &&
      item->kind == SourceKind::kDictItem && PyUnicode_Check(item->key.get()))
    slot = keyword_slot(object, item->key.get());
  return {std::move(program), slot};
}

std::string source_text(const Source* source, PyObject* code) {
  using TextOf = std::string (*)(const Source*, const Beneath&);
  static constexpr TextOf kTexts[] = {
#define FJ_ROOT(name, read, load, text) text,
#define FJ_STEP(name, read, load, text) text,
#define FJ_NUMBER(name, read, load, text) text,
#include "guards/set/source_kinds.def"
#undef FJ_ROOT
#undef FJ_STEP
#undef FJ_NUMBER
  };
  ErrorGuard keep_error;
  std::vector<const Source*> steps;
  for (const Source* at = source; at; at = at->base) {
    if (steps.size() == kMaxPathDepth) break;
    steps.push_back(at);
  }
  Beneath beneath{code, steps.back()->base ? "..." : "", "..."};
  for (size_t i = steps.size(); i-- > 0;) {
    std::string text = kTexts[size_t(steps[i]->kind)](steps[i], beneath);
    beneath.owner = std::exchange(beneath.base, std::move(text));
  }
  return std::move(beneath.base);
}

}  // namespace framejit

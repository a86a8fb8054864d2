#include "guards/set/shape_history.h"

#include <bit>
#include <optional>

#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "guards/set/object_text.h"
#include "guards/set/source_text.h"

namespace framejit {
namespace {

// An int, or the bits of a float.
struct Number {
  int64_t value;
  bool is_float;
};

std::optional<Number> number_value(PyObject* object) {
  if (object && PyFloat_CheckExact(object)) {
    return Number{std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(object)), true};
  }
  if (!object || !PyLong_CheckExact(object)) return {};
  int overflow = 0;
  int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow) return {};
  return Number{value, false};
}

// Two values of one type.
bool has_changed(const std::optional<Number>& expected,
                 const std::optional<Number>& actual) {
  return expected && actual && expected->is_float == actual->is_float &&
         expected->value != actual->value;
}

// Tuples of constants nest as deep as programs write them.
constexpr int kMaxTupleDepth = 8;

// Every number in a constant: itself, or the items of a tuple, by source text.
template <class F>
void visit_numbers(PyObject* object, const std::string& text, F&& f,
                   int depth = 0) {
  if (auto number = number_value(object)) return f(text, *number);
  if (!object || !PyTuple_CheckExact(object) || depth == kMaxTupleDepth) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    visit_numbers(PyTuple_GET_ITEM(object, i),
                  text + "[" + std::to_string(i) + "]", f, depth + 1);
  }
}

// The same of two values found at one place, where both have a number.
template <class F>
void visit_numbers(PyObject* expected, PyObject* actual,
                   const std::string& text, F&& f, int depth = 0) {
  if (auto number = number_value(expected))
    return f(text, number, number_value(actual));
  if (!expected || !actual || !PyTuple_CheckExact(expected) ||
      !PyTuple_CheckExact(actual) || depth == kMaxTupleDepth ||
      PyTuple_GET_SIZE(expected) != PyTuple_GET_SIZE(actual))
    return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); ++i) {
    visit_numbers(PyTuple_GET_ITEM(expected, i), PyTuple_GET_ITEM(actual, i),
                  text + "[" + std::to_string(i) + "]", f, depth + 1);
  }
}

uint64_t bit(size_t dim) { return dim < 64 ? uint64_t{1} << dim : 0; }

// Is `actual` another number than `expected` has at these symbols?
bool is_other_number(const Expr& expected, int64_t actual,
                     const SymbolValues& symbols) {
  std::vector<int> used;
  expected.collect_symbols(&used);
  for (int symbol : used) {
    if (!symbols.available[symbol]) return false;
  }
  int64_t value;
  return expected.try_evaluate(symbols.values.data(), &value) &&
         value != actual;
}

bool holds_numbers(PyObject* constant) {
  return number_value(constant) || PyTuple_CheckExact(constant);
}

}  // namespace

bool ShapeHistory::mark(const std::string& text, const DynamicDims& changed) {
  if (!changed.sizes && !changed.strides) return false;
  DynamicDims& known = dynamic_dims_[text];
  bool is_new = (changed.sizes & ~known.sizes) != 0 ||
                (changed.strides & ~known.strides) != 0;
  known.sizes |= changed.sizes;
  known.strides |= changed.strides;
  return is_new;
}

bool ShapeHistory::mark_number(const std::string& text) {
  return !std::exchange(dynamic_numbers_[text], true);
}

bool ShapeHistory::note_miss(const GuardSet& set, PyObject* const* args,
                             PyObject* function, PyObject* code) {
  ErrorGuard keep_error;
  SourceValues sources(set, args, function);
  const SymbolValues symbols = read_symbols(set, sources);
  bool changed = false;
  for (const Guard& guard : set.guards()) {
    if (guard.kind == GuardKind::kTensor) {
      const TensorSpec& spec = set.tensor_specs()[guard.number];
      PyObject* value = sources.get(guard.source);
      TensorFields fields = value ? tensor_fields(value) : TensorFields();
      if (!fields.valid ||
          fields.dim != static_cast<int64_t>(spec.sizes.size()))
        continue;
      DynamicDims dims;
      for (size_t d = 0; d < spec.sizes.size(); ++d) {
        if (spec.sizes[d].is_const() &&
            !spec.sizes[d].is_const(fields.sizes[d]))
          dims.sizes |= bit(d);
        if (spec.check_strides &&
            is_other_number(spec.strides[d], fields.strides[d], symbols))
          dims.strides |= bit(d);
      }
      changed |= mark(source_text(guard.source, code), dims);
    } else if (guard.kind == GuardKind::kLength) {
      PyObject* container = sources.get(guard.source);
      const Py_ssize_t actual = container ? container_length(container) : -1;
      if (actual >= 0 && actual != guard.number)
        changed |= mark_number(text_of_length(source_text(guard.source, code)));
    } else if (guard.kind == GuardKind::kTypeAttrIs) {
      if (guard.number) continue;  // a property, which may be gone
      // A number of a class: a counter, say.
      auto expected = number_value(guard.object2.get());
      PyObject* type = expected ? sources.get(guard.source) : nullptr;
      if (!type || !PyType_Check(type)) continue;
      auto actual = number_value(_PyType_Lookup(
          reinterpret_cast<PyTypeObject*>(type), guard.object.get()));
      if (has_changed(expected, actual)) {
        changed |= mark_number(source_text(guard.source, code) + "." +
                               string_text(guard.object.get()));
      }
    } else if (guard.kind == GuardKind::kEquals ||
               guard.kind == GuardKind::kFloatIs) {
      PyObject* expected = guard.object.get();
      if (!holds_numbers(expected)) continue;
      visit_numbers(expected, sources.get(guard.source),
                    source_text(guard.source, code),
                    [&](const std::string& text, auto was, auto is) {
                      if (has_changed(was, is)) changed |= mark_number(text);
                    });
    }
  }
  // A float that was symbolic from the start, as dynamic=True has it.
  for (size_t i = 0; i < set.symbols().size(); ++i) {
    const Symbol& symbol = set.symbols()[i];
    if (symbol.source->kind == SourceKind::kFloatBits && symbols.available[i] &&
        symbols.values[i] != symbol.hint)
      changed |= mark_number(source_text(symbol.source->base, code));
  }
  return changed;
}

bool ShapeHistory::observe(const GuardSet& set, PyObject* const* args,
                           PyObject* function, PyObject* code) {
  ErrorGuard keep_error;
  SourceValues sources(set, args, function);
  bool changed = false;
  for (const Guard& guard : set.guards()) {
    if (guard.kind == GuardKind::kTensor) {
      PyObject* value = sources.get(guard.source);
      TensorFields fields = value ? tensor_fields(value) : TensorFields();
      if (!fields.valid) continue;
      std::string text = source_text(guard.source, code);
      Shape shape{{fields.sizes, fields.sizes + fields.dim},
                  {fields.strides, fields.strides + fields.dim}};
      auto [entry, is_new] = seen_shapes_.try_emplace(text, shape);
      const Shape& seen = entry->second;
      if (!is_new && seen.sizes.size() == shape.sizes.size()) {
        DynamicDims dims;
        for (size_t d = 0; d < shape.sizes.size(); ++d) {
          if (seen.sizes[d] != shape.sizes[d]) dims.sizes |= bit(d);
          if (seen.strides[d] != shape.strides[d]) dims.strides |= bit(d);
        }
        changed |= mark(text, dims);
      }
      entry->second = std::move(shape);
    } else if (guard.kind == GuardKind::kEquals ||
               guard.kind == GuardKind::kFloatIs) {
      if (!holds_numbers(guard.object.get())) continue;
      visit_numbers(guard.object.get(), source_text(guard.source, code),
                    [&](const std::string& text, Number number) {
                      auto& seen = number.is_float ? seen_floats_ : seen_ints_;
                      auto [entry, is_new] =
                          seen.try_emplace(text, number.value);
                      if (!is_new && entry->second != number.value)
                        changed |= mark_number(text);
                      entry->second = number.value;
                    });
    }
  }
  return changed;
}

}  // namespace framejit

#include "guards/set/shape_history.h"

#include <bit>
#include <optional>

#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "guards/set/object_text.h"

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

}  // namespace

bool ShapeHistory::mark_dim(const std::string& text, size_t dim) {
  if (dim >= 64) return false;
  uint64_t& mask = dynamic_dims_[text];
  bool is_new = !(mask >> dim & 1);
  mask |= uint64_t{1} << dim;
  return is_new;
}

bool ShapeHistory::mark_number(const std::string& text) {
  return !std::exchange(dynamic_numbers_[text], true);
}

bool ShapeHistory::note_miss(const GuardSet& set, PyObject* const* args,
                             PyObject* function, PyObject* code) {
  ErrorGuard keep_error;
  SourceValues sources(set, args, function);
  bool changed = false;
  for (const Guard& guard : set.guards()) {
    if (guard.kind == GuardKind::kTensor) {
      const TensorSpec& spec = set.tensor_specs()[guard.number];
      PyObject* value = sources.get(guard.source);
      TensorFields fields = value ? tensor_fields(value) : TensorFields();
      if (!fields.valid ||
          fields.dim != static_cast<int64_t>(spec.sizes.size()))
        continue;
      for (size_t d = 0; d < spec.sizes.size(); ++d) {
        if (spec.sizes[d].is_const() &&
            !spec.sizes[d].is_const(fields.sizes[d]))
          changed |= mark_dim(source_text(guard.source, code), d);
      }
    } else if (guard.kind == GuardKind::kTypeAttrIs) {
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
      auto expected = number_value(guard.object.get());
      auto actual =
          expected ? number_value(sources.get(guard.source)) : std::nullopt;
      if (has_changed(expected, actual))
        changed |= mark_number(source_text(guard.source, code));
    }
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
      std::vector<int64_t> sizes(fields.sizes, fields.sizes + fields.dim);
      auto [entry, is_new] = seen_sizes_.try_emplace(text, sizes);
      if (!is_new && entry->second.size() == sizes.size()) {
        for (size_t d = 0; d < sizes.size(); ++d) {
          if (entry->second[d] != sizes[d]) changed |= mark_dim(text, d);
        }
      }
      entry->second = std::move(sizes);
    } else if (guard.kind == GuardKind::kEquals ||
               guard.kind == GuardKind::kFloatIs) {
      auto number = number_value(guard.object.get());
      if (!number) continue;
      std::string text = source_text(guard.source, code);
      auto& seen = number->is_float ? seen_floats_ : seen_ints_;
      auto [entry, is_new] = seen.try_emplace(text, number->value);
      if (!is_new && entry->second != number->value)
        changed |= mark_number(text);
      entry->second = number->value;
    }
  }
  return changed;
}

}  // namespace framejit

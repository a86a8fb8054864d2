// Guards about one object in native code.
#include <cstring>
#include <string>

#include "guards/emit/emit_helpers.h"
#include "guards/emit/emitter.h"

namespace framejit {

using namespace asmjit;

void Emitter::emit_by_kind(const Source* source, const Guard& guard) {
  static constexpr void (Emitter::* kEmit[])(const Source*, const Guard&) = {
#define FJ_GUARD(name, scope, rank, rereads, text, holds, failure, emit) \
  &Emitter::emit,
#include "guards/set/guard_kinds.def"
#undef FJ_GUARD
  };
  (this->*kEmit[size_t(guard.kind)])(source, guard);
}

void Emitter::emit_guard(const Source* source, const Guard& guard) {
  if (guard.source != source) return emit_function_name(source, guard);
  if (guard_kind_row(guard.kind).scope == GuardScope::kObject)
    FJ_CHECK(holds_for(guard, value(source)), "the guard does not hold");
  emit_by_kind(source, guard);
}

void Emitter::emit_type(const Source* source, const Guard&) {
  check_type(source, Py_TYPE(value(source)));
}

void Emitter::emit_identity(const Source* source, const Guard&) {
  Node& n = node(source);
  if (n.constant) return;
  PyObject* now = value(source);
  bring(source);
  fail_unless_equal(x86::rax, now);
  n.constant = now;  // the guard keeps it alive
}

void Emitter::emit_loaded(const Source*, const Guard&) {}

void Emitter::emit_type_attr(const Source* source, const Guard& guard) {
  PyObject* now = value(source);
  auto* type = reinterpret_cast<PyTypeObject*>(now);
  if (!type_version(type) || form(source) == Form::kGeneric)
    return emit_call_guard(source, guard);
  Node& n = node(source);
  if (!n.constant) {
    bring(source);
    keep(now);
    fail_unless_equal(x86::rax, now);
    n.constant = now;
  }
  check_type_version(source, type);
}

// ---- about several sources or the set: behind the walk
void Emitter::emit_same(const Source*, const Guard& guard) {
  bring(guard.source);
  a_.mov(x86::r8, x86::rax);
  bring(guard.other);
  a_.cmp(x86::rax, x86::r8);
  fail_when(guard.kind == GuardKind::kSameObject ? x86::CondCode::kNE
                                                 : x86::CondCode::kE);
}

void Emitter::emit_shape_expr(const Source*, const Guard& guard) {
  std::vector<int> used;
  guard.expr.collect_symbols(&used);
  for (int symbol : used) {
    if (!node(set_.symbols()[symbol].source).temporary) continue;
    walk_.root_guards.push_back(
        static_cast<int>(&guard - set_.guards().data()));
    return;
  }
  emit_expression(guard.expr);
  in_rax_ = nullptr;
  a_.test(x86::rax, x86::rax);
  fail_when(x86::CondCode::kZ);
}

void Emitter::emit_thread_state_guard(const Source*, const Guard&) {
  if (!state_checked_) emit_thread_state();
}

// ---- about one source
void Emitter::emit_call_guard(const Source* source, const Guard& guard) {
  bring(source);
  a_.mov(x86::rdi, reinterpret_cast<uint64_t>(&guard));
  a_.mov(x86::rsi, x86::rax);
  call(reinterpret_cast<const void*>(predicate_holds));
  check_result();
  restore_arguments();
}

// The text is compared, not its address: a method table may have been freed,
// and another one made in its place.
void Emitter::emit_function_name(const Source* function, const Guard& guard) {
  FJ_CHECK(holds_for(guard, value(guard.source)), "the guard does not hold");
  const auto* now = reinterpret_cast<PyCFunctionObject*>(value(function));
  const std::string name(now->m_ml->ml_name,
                         std::strlen(now->m_ml->ml_name) + 1);
  check_type(function, &PyCFunction_Type);
  a_.mov(x86::r8, field(function, offsetof(PyCFunctionObject, m_ml)));
  a_.mov(x86::r8, x86::qword_ptr(x86::r8, offsetof(PyMethodDef, ml_name)));
  int at = 0, left = static_cast<int>(name.size());
  auto take = [&](auto number) {
    std::memcpy(&number, name.data() + at, sizeof number);
    at += static_cast<int>(sizeof number);
    left -= static_cast<int>(sizeof number);
    return number;
  };
  while (left >= 8) {
    x86::Mem text = x86::qword_ptr(x86::r8, at);
    fail_unless_equal(text, take(uint64_t{}));
  }
  if (left >= 4) {
    x86::Mem text = x86::dword_ptr(x86::r8, at);
    a_.cmp(text, take(uint32_t{}));
    fail_when(x86::CondCode::kNE);
  }
  while (left > 0) {
    x86::Mem text = x86::byte_ptr(x86::r8, at);
    a_.cmp(text, take(uint8_t{}));
    fail_when(x86::CondCode::kNE);
  }
}

void Emitter::emit_equals(const Source* source, const Guard& guard) {
  Node& n = node(source);
  if (n.constant) return;  // constants are immutable, and equal now
  PyObject* now = value(source);
  if (now == Py_None || now == Py_Ellipsis || PyBool_Check(now)) {
    bring(source);
    fail_unless_equal(x86::rax, now);
    n.constant = now;
    return;
  }
  if (PyFloat_CheckExact(now)) {
    check_type(source, &PyFloat_Type);
    uint64_t bits;
    std::memcpy(&bits,
                reinterpret_cast<char*>(now) + offsetof(PyFloatObject, ob_fval),
                8);
    return fail_unless_equal(field(source, offsetof(PyFloatObject, ob_fval)),
                             bits);
  }
  if (PyLong_CheckExact(now)) {
#if PY_VERSION_HEX >= 0x030C0000
    constexpr int kTag = offsetof(PyLongObject, long_value.lv_tag);
    constexpr int kDigits = offsetof(PyLongObject, long_value.ob_digit);
    uint64_t tag = reinterpret_cast<PyLongObject*>(now)->long_value.lv_tag;
    uint64_t digits = tag >> 3;
#else
    constexpr int kTag = offsetof(PyVarObject, ob_size);
    constexpr int kDigits = offsetof(PyLongObject, ob_digit);
    int64_t size = Py_SIZE(now);
    uint64_t tag = static_cast<uint64_t>(size);
    uint64_t digits = static_cast<uint64_t>(size < 0 ? -size : size);
#endif
    if (digits <= 3) {
      check_type(source, &PyLong_Type);
      bring(source);
      fail_unless_equal(x86::qword_ptr(x86::rax, kTag), tag);
      for (uint64_t i = 0; i < digits; ++i) {
        uint32_t digit;
        int offset = kDigits + static_cast<int>(4 * i);
        std::memcpy(&digit, reinterpret_cast<char*>(now) + offset, 4);
        a_.cmp(x86::dword_ptr(x86::rax, offset), digit);
        fail_when(x86::CondCode::kNE);
      }
      return;
    }
  }
  // The very object is the usual case; another one is compared out of line.
  bring(source);
  keep(now);
  Label differs = a_.newLabel(), resume = a_.newLabel();
  set_r11(reinterpret_cast<uint64_t>(now));
  a_.cmp(x86::rax, x86::r11);
  a_.jne(differs);
  emit_unusual_case(source, guard, differs, resume);
}

void Emitter::emit_unusual_case(const Source* source, const Guard& guard,
                                const Label& from, const Label& resume) {
  a_.bind(resume);
  forget_r11();
  has_calls_ = true;
  saves_ = true;
  int slot = node(source).slot;
  PyObject* constant = node(source).constant;
  const Guard* kept_guard = &guard;
  out_of_line([=, this] {
    a_.bind(from);
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(kept_guard));
    a_.mov(x86::rsi, x86::rax);
    a_.mov(x86::rax, reinterpret_cast<uint64_t>(
                         reinterpret_cast<const void*>(predicate_holds)));
    a_.call(x86::rax);
    check_result();
    restore_arguments();
    if (constant)
      a_.mov(x86::rax, reinterpret_cast<uint64_t>(constant));
    else if (slot >= 0)
      a_.mov(x86::rax, slot_at(slot));
    a_.jmp(resume);
  });
  // Without a slot nothing reads the value again.
  if (!constant && slot < 0) in_rax_ = nullptr;
}

void Emitter::emit_key_guard(const Source* source, const Guard& guard) {
  if (check_dict_version(source)) return;
  Node& n = node(source);
  PyObject* dict = value(source);
  PyObject* key = guard.object.get();
  if (form(source) == Form::kGeneric) return emit_call_guard(source, guard);
  if (!n.is_dict) check_flag(source, Py_TPFLAGS_DICT_SUBCLASS);
  n.is_dict = true;
  if (guard.kind == GuardKind::kHasKey) {
    Py_ssize_t entry = entry_of(dict, key);
    if (entry < 0) return emit_call_guard(source, guard);
    bring(source);
    PyObject* stored = dict_keys(dict)->key_at(entry);
    dict_keys_in_r9(dict, &n.dict_shape);
    pin_slot(Pin::Kind::kDictSlot, source, dict, entry);
    return slot_value(dict, entry, stored, false);
  }
  if (PyDict_GET_SIZE(dict) == 0) {
    fail_unless_zero(field(source, kDictUsedOffset));
    return;
  }
  bring(source);
  if (!absent_by_probe(dict, key, &n.dict_shape, source,
                       Pin::Kind::kDictAbsent))
    emit_call_guard(source, guard);
}

void Emitter::emit_no_instance_attr(const Source* source, const Guard& guard) {
  Node& n = node(source);
  if (n.instance_version) return;
  PyObject* object = value(source);
  PyTypeObject* type = Py_TYPE(object);
  PyObject* name = guard.object.get();
  if (form(source) == Form::kGeneric) return emit_call_guard(source, guard);
  if (type->tp_dictoffset == 0 && !(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
    pin({Pin::Kind::kType, source->id, 0, reinterpret_cast<uint64_t>(type)});
    return check_type(source, type);
  }
  InstanceStorage storage = instance_storage(object);
  bool managed = type->tp_flags & Py_TPFLAGS_MANAGED_DICT;
  if (storage.values) {
    Py_ssize_t entry = keys_find(storage.keys, name);
    inline_values_in_r8(source);
    if (entry >= 0) {
      a_.cmp(x86::qword_ptr(x86::r8, static_cast<int>(8 * entry)), 0);
      fail_when(x86::CondCode::kNE);
      return;
    }
    // The type, which is kept, keeps its key table.
    size_t last;
    a_.mov(x86::r9, reinterpret_cast<uint64_t>(storage.keys));
    if (!absent_in_table(storage.keys, name, &last))
      emit_call_guard(source, guard);
    return;
  }
  if (!storage.dict) {
    if (!managed) return emit_call_guard(source, guard);
    return emit_nothing_stored(source, guard);
  }
  if (!PyDict_CheckExact(storage.dict) ||
      (!managed && type->tp_dictoffset <= 0))
    return emit_call_guard(source, guard);
  instance_dict_in_rax(source);
  PyObject* dict = storage.dict;
  if (form(source) == Form::kVersion && can_use_version(dict)) {
    instance_version(source, dict);
    return;
  }
  if (PyDict_GET_SIZE(dict) == 0) {
    a_.cmp(x86::qword_ptr(x86::rax, kDictUsedOffset), 0);
    fail_when(x86::CondCode::kNE);
    return;
  }
  if (!absent_by_probe(dict, name, &n.instance_shape, source,
                       Pin::Kind::kInstanceAbsent))
    emit_call_guard(source, guard);
}

// The instance has neither values nor a dict yet; else a C call decides.
void Emitter::emit_nothing_stored(const Source* source, const Guard& guard) {
  PyTypeObject* type = Py_TYPE(value(source));
  if (node(source).type != type)
    pin({Pin::Kind::kType, source->id, 0, reinterpret_cast<uint64_t>(type)});
  check_type(source, type);
#if PY_VERSION_HEX >= 0x030D0000
  if (type->tp_flags & Py_TPFLAGS_INLINE_VALUES)
    return emit_call_guard(source, guard);
#endif
  bring(source);
  Label stored = a_.newLabel(), resume = a_.newLabel();
  a_.mov(x86::r8, x86::qword_ptr(x86::rax, kManagedDictOffset));
#if PY_VERSION_HEX < 0x030C0000
  a_.or_(x86::r8, x86::qword_ptr(x86::rax, kInlineValuesOffset));
#else
  a_.test(x86::r8, x86::r8);
#endif
  a_.jnz(stored);
  emit_unusual_case(source, guard, stored, resume);
}

void Emitter::emit_no_tensor_attrs(const Source* source, const Guard& guard) {
  Node& n = node(source);
  if (n.instance_version) return;
  PyObject* object = value(source);
  PyTypeObject* type = Py_TYPE(object);
  InstanceStorage storage = instance_storage(object);
  bool managed = type->tp_flags & Py_TPFLAGS_MANAGED_DICT;
  if (form(source) == Form::kGeneric || !managed || storage.values ||
      storage.dict)
    return emit_call_guard(source, guard);
  emit_nothing_stored(source, guard);
}

void Emitter::emit_dict_keys(const Source* source, const Guard& guard) {
  Node& n = node(source);
  PyObject* dict = value(source);
  PyObject* keys_tuple = guard.object.get();
  Py_ssize_t count = PyTuple_GET_SIZE(keys_tuple);
  if (!PyDict_Check(dict)) return emit_call_guard(source, guard);  // a set
  if (count == 0) {
    if (is_settled(source)) return;
    if (!n.is_dict) check_flag(source, Py_TPFLAGS_DICT_SUBCLASS);
    n.is_dict = true;
    fail_unless_zero(field(source, kDictUsedOffset));
    return;
  }
  // An OrderedDict keeps its order elsewhere, a split table in its values.
  bool plain = PyDict_CheckExact(dict) && !dict_split_values(dict);
  if (!plain || form(source) == Form::kGeneric)
    return emit_call_guard(source, guard);
  if (n.type != &PyDict_Type)
    pin({Pin::Kind::kType, source->id, 0,
         reinterpret_cast<uint64_t>(&PyDict_Type)});
  check_type(source, &PyDict_Type);
  if (check_dict_version(source)) return;
  bring(source);
  a_.cmp(x86::qword_ptr(x86::rax, kDictUsedOffset),
         static_cast<int32_t>(count));
  fail_when(x86::CondCode::kNE);
  dict_keys_in_r9(dict, &n.dict_shape);
  const DictKeys* keys = dict_keys(dict);
  // As many live entries as there are keys, in their places: no other can be.
  for (Py_ssize_t i = 0; i < keys->num_entries; ++i) {
    PyObject* key = keys->key_at(i);
    if (!key || !keys->value_at(i)) continue;
    keep(key);
    pin_slot(Pin::Kind::kDictSlot, source, dict, i);
    fail_unless_equal(
        x86::qword_ptr(x86::r9, static_cast<int>(keys->key_offset(i))),
        reinterpret_cast<uint64_t>(key));
  }
}

void Emitter::emit_c_method(const Source* source, const Guard& guard) {
  check_type(source, &PyCFunction_Type);
  fail_unless_equal(field(source, offsetof(PyCFunctionObject, m_ml)),
                    static_cast<uint64_t>(guard.number));
}

// Where the length of a container is; -1: asked for by a call. Checks the type.
int Emitter::length_offset(const Source* source) {
  Node& n = node(source);
  PyObject* now = value(source);
  if (PyDict_Check(now)) {
    if (!n.is_dict) check_flag(source, Py_TPFLAGS_DICT_SUBCLASS);
    n.is_dict = true;
    return kDictUsedOffset;
  }
  if (PyList_Check(now)) {
    check_flag(source, Py_TPFLAGS_LIST_SUBCLASS);
    return offsetof(PyVarObject, ob_size);
  }
  if (PyTuple_Check(now)) {
    check_flag(source, Py_TPFLAGS_TUPLE_SUBCLASS);
    return offsetof(PyVarObject, ob_size);
  }
  if (PyBytes_Check(now) || PyUnicode_Check(now)) {
    check_flag(source, PyBytes_Check(now) ? Py_TPFLAGS_BYTES_SUBCLASS
                                          : Py_TPFLAGS_UNICODE_SUBCLASS);
    return PyBytes_Check(now) ? offsetof(PyVarObject, ob_size)
                              : offsetof(PyASCIIObject, length);
  }
  if (PyAnySet_CheckExact(now) && n.type == Py_TYPE(now))
    return offsetof(PySetObject, used);
  return -1;
}

void Emitter::emit_length(const Source* source, const Guard& guard) {
  Node& n = node(source);
  PyObject* now = value(source);
  const bool never_changes =
      PyTuple_Check(now) || PyBytes_Check(now) || PyUnicode_Check(now);
  if (PyDict_Check(now) ? is_settled(source) : never_changes && n.constant)
    return;
  const int offset = length_offset(source);
  if (offset < 0) return emit_call_guard(source, guard);
  if (guard.number == 0) return fail_unless_zero(field(source, offset));
  fail_unless_equal(field(source, offset), static_cast<uint64_t>(guard.number));
}

}  // namespace framejit

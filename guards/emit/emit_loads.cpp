// Following one step of a path in native code.
#include "guards/emit/emit_helpers.h"
#include "guards/emit/emitter.h"
#include "guards/known_objects.h"

#include <structmember.h>

namespace framejit {

using namespace asmjit;

namespace {

constexpr int kSize = offsetof(PyVarObject, ob_size);
constexpr int kTupleItems = offsetof(PyTupleObject, ob_item);
constexpr int kListItems = offsetof(PyListObject, ob_item);
constexpr uint32_t kShapeMask = 0xFFFFFF;

uint32_t shape_of(const DictKeys* keys) {
  return keys->log2_size | keys->log2_index_bytes << 8 | keys->kind << 16;
}

// The C member that a step reads, as its descriptor says. Exact built-in types
// only: a subclass may have a member of that name.
PyMemberDef* member_of(const Source* source, PyObject* base) {
  const char* name = nullptr;
  PyTypeObject* type = Py_TYPE(base);
  if (type != &PyProperty_Type && type != &PyStaticMethod_Type &&
      type != &PyClassMethod_Type && type != kPartial.get())
    return nullptr;
  if (source->kind == SourceKind::kPartialPart) {
    static const char* const kNames[] = {"func", "args", "keywords"};
    name = kNames[source->index];
  } else if (type == &PyProperty_Type) {
    static const char* const kNames[] = {"fget", "fset", "fdel"};
    name = kNames[source->index];
  } else {
    name = "__func__";
  }
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* member = key ? _PyType_Lookup(Py_TYPE(base), key.get()) : nullptr;
  PyErr_Clear();
  if (!member || !Py_IS_TYPE(member, &PyMemberDescr_Type)) return nullptr;
  return reinterpret_cast<PyMemberDescrObject*>(member)->d_member;
}

}  // namespace

void Emitter::load(const Source* source) {
  static constexpr void (Emitter::* kLoads[])(const Source*) = {
#define FJ_ROOT(name, read, load, ...) &Emitter::load,
#define FJ_STEP(name, read, load, ...) &Emitter::load,
#define FJ_NUMBER(name, read, load, ...) &Emitter::load,
#include "guards/set/source_kinds.def"
#undef FJ_ROOT
#undef FJ_STEP
#undef FJ_NUMBER
  };
  if (!is_int_source(source->kind))
    FJ_CHECK(value(source), "the path does not exist");
  (this->*kLoads[size_t(source->kind)])(source);
}

void Emitter::load_argument(const Source* source) {
  a_.mov(x86::rax,
         x86::qword_ptr(x86::rdi, static_cast<int>(8 * source->index)));
  fail_if_null(x86::rax);
}

void Emitter::load_function(const Source*) {
  a_.mov(x86::rax, x86::rsi);
  fail_if_null(x86::rax);
}

void Emitter::load_constant(const Source* source) {
  node(source).constant = value(source);
}

void Emitter::load_cell_contents(const Source* source) {
  if (source->base->kind != SourceKind::kClosureCell)
    check_type(source->base, &PyCell_Type);
  a_.mov(x86::rax, field(source->base, offsetof(PyCellObject, ob_ref)));
  fail_if_null(x86::rax);
}

void Emitter::load_method_part(const Source* source) {
  if (PyCFunction_CheckExact(value(source->base))) {
    check_type(source->base, &PyCFunction_Type);
    a_.mov(x86::rax, field(source->base, offsetof(PyCFunctionObject, m_self)));
    fail_if_null(x86::rax);
    return;
  }
  check_type(source->base, &PyMethod_Type);
  a_.mov(x86::rax,
         field(source->base, source->kind == SourceKind::kMethodSelf
                                 ? offsetof(PyMethodObject, im_self)
                                 : offsetof(PyMethodObject, im_func)));
}

void Emitter::load_type_of(const Source* source) {
  if (node(source->base).type) {
    node(source).constant = value(source);
    return;
  }
  a_.mov(x86::rax, field(source->base, offsetof(PyObject, ob_type)));
}

void Emitter::load_instance_dict(const Source* source) {
  if (!instance_storage(value(source->base)).dict ||
      form(source->base) == Form::kGeneric)
    return load_step(source);
  instance_dict_in_rax(source->base);
  node(source).is_dict =
      PyDict_Check(value(source)) &&
      (Py_TYPE(value(source->base))->tp_flags & Py_TPFLAGS_MANAGED_DICT);
}

void Emitter::load_slot_member(const Source* source) {
  PyTypeObject* type = Py_TYPE(value(source->base));
  if (!type_version(type) || form(source->base) == Form::kGeneric)
    return load_step(source);
  if (node(source->base).type != type)
    pin({Pin::Kind::kType, source->base->id, 0,
         reinterpret_cast<uint64_t>(type)});
  check_type(source->base, type);
  check_type_version(source->base, type);  // it still has the member
  a_.mov(x86::rax, field(source->base, static_cast<int>(source->index)));
  fail_if_null(x86::rax);
}

void Emitter::tuple_item(const x86::Gp& tuple, int64_t index) {
  fail_if_null(tuple);
  a_.cmp(x86::qword_ptr(tuple, kSize), static_cast<int32_t>(index));
  fail_when(x86::CondCode::kLE);
  a_.mov(x86::rax,
         x86::qword_ptr(tuple, static_cast<int>(kTupleItems + 8 * index)));
  fail_if_null(x86::rax);
}

void Emitter::load_function_part(const Source* source) {
  if (source->base->kind != SourceKind::kFunction)
    check_type(source->base, &PyFunction_Type);
  auto part = [&](size_t offset) {
    return field(source->base, static_cast<int>(offset));
  };
  switch (source->kind) {
    case SourceKind::kGlobals:
      a_.mov(x86::rax, part(offsetof(PyFunctionObject, func_globals)));
      node(source).is_dict = true;
      return;
    case SourceKind::kBuiltins:
      a_.mov(x86::rax, part(offsetof(PyFunctionObject, func_builtins)));
      return;
    case SourceKind::kFunctionCode:
      a_.mov(x86::rax, part(offsetof(PyFunctionObject, func_code)));
      return;
    case SourceKind::kClosureCell:
      a_.mov(x86::r8, part(offsetof(PyFunctionObject, func_closure)));
      return tuple_item(x86::r8, source->index);
    case SourceKind::kDefault:
      a_.mov(x86::r8, part(offsetof(PyFunctionObject, func_defaults)));
      return tuple_item(x86::r8, source->index);
    default:
      break;
  }
  // A keyword default: an item of a dict that has no source of its own.
  PyObject* dict =
      reinterpret_cast<PyFunctionObject*>(value(source->base))->func_kwdefaults;
  Py_ssize_t entry = entry_of(dict, source->key.get());
  if (entry < 0 || form(source->base) == Form::kGeneric)
    return load_step(source);
  a_.mov(x86::rax, part(offsetof(PyFunctionObject, func_kwdefaults)));
  in_rax_ = nullptr;
  fail_if_null(x86::rax);
  bool checked = false;
  dict_keys_in_r9(dict, &checked);
  slot_value(dict, entry, dict_keys(dict)->key_at(entry), true);
}

void Emitter::load_step(const Source* source) {
  bring(source->base);
  a_.mov(x86::rdi, reinterpret_cast<uint64_t>(source));
  a_.mov(x86::rsi, x86::rax);
  call(reinterpret_cast<const void*>(predicate_step));
  restore_arguments();
  fail_if_null(x86::rax);
}

void Emitter::load_type_attr(const Source* source) {
  PyObject* type_object = value(source->base);
  auto* type = reinterpret_cast<PyTypeObject*>(type_object);
  if (!type_version(type) || form(source->base) == Form::kGeneric)
    return load_step(source);
  Node& base = node(source->base);
  if (!base.constant) {
    bring(source->base);
    keep(type_object);
    fail_unless_equal(x86::rax, type_object);
    base.constant = type_object;
  }
  check_type_version(source->base, type);
  node(source).constant = value(source);
}

void Emitter::load_member(const Source* source) {
  PyObject* base = value(source->base);
  PyMemberDef* member = member_of(source, base);
  bool plain =
      member && (member->type == T_OBJECT || member->type == T_OBJECT_EX);
  // A null T_OBJECT member reads as None; the pointer then is no object.
  if (plain) {
    PyObject* raw = *reinterpret_cast<PyObject**>(
        reinterpret_cast<char*>(base) + member->offset);
    plain = raw && raw == value(source);
  }
  PyTypeObject* type = Py_TYPE(base);
  bool fixed_type = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
  if (!plain || form(source->base) == Form::kGeneric ||
      (!fixed_type && !type_version(type)))
    return load_step(source);
  if (!fixed_type) check_type_version(source->base, type);
  if (node(source->base).type != type)
    pin({Pin::Kind::kType, source->base->id, 0,
         reinterpret_cast<uint64_t>(type)});
  check_type(source->base, type);
  bring(source->base);
  a_.mov(x86::rax, x86::qword_ptr(x86::rax, static_cast<int>(member->offset)));
  fail_if_null(x86::rax);
}

void Emitter::load_sequence_item(const Source* source) {
  Node& base = node(source->base);
  if (source->kind == SourceKind::kTupleItem) {
    if (base.constant) {  // tuples are immutable
      node(source).constant = value(source);
      return;
    }
    check_flag(source->base, Py_TPFLAGS_TUPLE_SUBCLASS);
    bring(source->base);
    return tuple_item(x86::rax, source->index);
  }
  check_flag(source->base, Py_TPFLAGS_LIST_SUBCLASS);
  bring(source->base);
  a_.cmp(x86::qword_ptr(x86::rax, kSize), static_cast<int32_t>(source->index));
  fail_when(x86::CondCode::kLE);
  a_.mov(x86::rax, x86::qword_ptr(x86::rax, kListItems));
  a_.mov(x86::rax,
         x86::qword_ptr(x86::rax, static_cast<int>(8 * source->index)));
  fail_if_null(x86::rax);
}

// ---- dicts

bool Emitter::can_use_version(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  // 3.13.0: a store to an object with inline values changes no version.
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values) return false;
#endif
  return true;
}

bool Emitter::probe(const DictKeys* keys, PyObject* key,
                    std::vector<ProbeStep>* steps) {
  if (keys->kind == DictKeys::kGeneral || !PyUnicode_CheckExact(key))
    return false;
  Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) {
    PyErr_Clear();
    return false;
  }
  size_t mask = (size_t{1} << keys->log2_size) - 1;
  size_t perturb = static_cast<size_t>(hash), slot = perturb & mask;
  for (size_t count = 0; count <= mask + 64; ++count) {
    int64_t index = keys->index_at(slot);
    PyObject* other = index >= 0 ? keys->key_at(index) : nullptr;
    steps->push_back({slot, index, other});
    if (index == -1) return true;
    if (other && (other == key ||
                  (PyUnicode_GET_LENGTH(other) == PyUnicode_GET_LENGTH(key) &&
                   PyUnicode_Compare(other, key) == 0)))
      return true;
    perturb >>= 5;
    slot = (slot * 5 + perturb + 1) & mask;
  }
  return false;
}

Py_ssize_t Emitter::entry_of(PyObject* dict, PyObject* key) {
  const DictKeys* keys = dict_keys(dict);
  std::vector<ProbeStep> steps;
  if (probe(keys, key, &steps)) return steps.back().index;
  PyObject *found, *stored;
  if (dict_find(dict, key, &found, &stored) != Lookup::kFound) return -1;
  return keys_find(keys, stored);
}

bool Emitter::is_settled(const Source* source) {
  const Node& n = node(source);
  return n.dict_version ||
         (dicts_unchanged_ && n.constant && PyDict_Check(n.constant));
}

bool Emitter::check_dict_version(const Source* source) {
  Node& n = node(source);
  if (n.dict_version) return true;
  PyObject* dict = value(source);
  if (form(source) != Form::kVersion || !can_use_version(dict)) return false;
  if (dicts_unchanged_) {
    // The other walk has found the version to be that of when this was emitted.
    // A dict made since would have changed the counter: one at this address is
    // that one.
    if (!n.constant) {
      if (!n.is_dict) check_flag(source, Py_TPFLAGS_DICT_SUBCLASS);
      bring(source);
      fail_unless_equal(x86::rax, dict);
      n.constant = dict;
    }
    n.is_dict = n.dict_version = true;
    return true;
  }
  if (watches_->add_dict(dict)) {
    // Alive and unchanged: that it is this very one is all there is to check.
    if (!n.constant) {
      bring(source);
      fail_unless_equal(x86::rax, dict);
      n.constant = dict;
    }
    n.is_dict = n.dict_version = true;
    pin({Pin::Kind::kDictWatched, source->id, 0, watched_generation(dict),
         reinterpret_cast<uint64_t>(dict)});
    return true;
  }
  if (!n.is_dict) check_flag(source, Py_TPFLAGS_DICT_SUBCLASS);
  n.is_dict = true;
  uint64_t version = dict_version(dict);
  fail_unless_equal(field(source, kDictVersionOffset), version);
  pin({Pin::Kind::kDictVersion, source->id, 0, version,
       reinterpret_cast<uint64_t>(dict)});
  n.dict_version = true;
  return true;
}

void Emitter::instance_version(const Source* object, PyObject* dict) {
  node(object).instance_version = true;
  if (dicts_unchanged_) return fail_unless_equal(x86::rax, dict);
  if (watches_->add_dict(dict)) {
    fail_unless_equal(x86::rax, dict);
    pin({Pin::Kind::kInstanceWatched, object->id, 0, watched_generation(dict),
         reinterpret_cast<uint64_t>(dict)});
    return;
  }
  uint64_t version = dict_version(dict);
  fail_unless_equal(x86::qword_ptr(x86::rax, kDictVersionOffset), version);
  pin({Pin::Kind::kInstanceVersion, object->id, 0, version,
       reinterpret_cast<uint64_t>(dict)});
}

void Emitter::pin_slot(Pin::Kind kind, const Source* source, PyObject* dict,
                       Py_ssize_t entry) {
  const DictKeys* keys = dict_keys(dict);
  pin({kind, source->id, entry, shape_of(keys),
       reinterpret_cast<uint64_t>(keys->key_at(entry))});
}

void Emitter::dict_keys_in_r9(PyObject* dict, bool* checked) {
  a_.mov(x86::r9, x86::qword_ptr(x86::rax, kDictKeysOffset));
  if (*checked) return;
  *checked = true;
  a_.mov(x86::r8d, x86::dword_ptr(x86::r9, offsetof(DictKeys, log2_size)));
  a_.and_(x86::r8d, kShapeMask);
  a_.cmp(x86::r8d, shape_of(dict_keys(dict)));
  fail_when(x86::CondCode::kNE);
  a_.cmp(x86::qword_ptr(x86::rax, kDictValuesOffset), 0);
  if (dict_split_values(dict))
    fail_when(x86::CondCode::kE);
  else
    fail_when(x86::CondCode::kNE);
}

// rax: the dict, r9: its keys.
void Emitter::slot_value(PyObject* dict, Py_ssize_t entry, PyObject* stored_key,
                         bool load_it) {
  int offset = static_cast<int>(dict_keys(dict)->key_offset(entry));
  keep(stored_key);
  fail_unless_equal(x86::qword_ptr(x86::r9, offset),
                    reinterpret_cast<uint64_t>(stored_key));
  if (dict_split_values(dict)) {
    a_.mov(x86::r9, x86::qword_ptr(x86::rax, kDictValuesOffset));
    offset = static_cast<int>(kSplitValuesOffset + 8 * entry) - 8;
  } else if (!load_it) {
    return;  // an entry with a key has a value
  }
  if (!load_it) {
    a_.cmp(x86::qword_ptr(x86::r9, offset + 8), 0);
    fail_when(x86::CondCode::kE);
    return;
  }
  a_.mov(x86::rax, x86::qword_ptr(x86::r9, offset + 8));
  fail_if_null(x86::rax);
}

void Emitter::load_dict_item(const Source* source) {
  const Source* base = source->base;
  PyObject* dict = value(base);
  if (check_dict_version(base)) {
    node(source).constant = value(source);
    return;
  }
  Py_ssize_t entry =
      form(base) == Form::kGeneric ? -1 : entry_of(dict, source->key.get());
  if (entry < 0) return load_step(source);
  Node& n = node(base);
  if (!n.is_dict) check_flag(base, Py_TPFLAGS_DICT_SUBCLASS);
  n.is_dict = true;
  bring(base);
  PyObject* stored = dict_keys(dict)->key_at(entry);
  dict_keys_in_r9(dict, &n.dict_shape);
  pin_slot(Pin::Kind::kDictSlot, base, dict, entry);
  slot_value(dict, entry, stored, true);
}

// rax: a dict whose table is laid out as `dict`s. Proves the key absent from
// the hash slots a look-up would visit.
bool Emitter::absent_by_probe(PyObject* dict, PyObject* key, bool* checked,
                              const Source* source, Pin::Kind kind) {
  size_t last;
  const DictKeys* keys = dict_keys(dict);
  std::vector<ProbeStep> steps;
  if (!probe(keys, key, &steps) || steps.size() > 6) return false;
  if (steps.back().index >= 0) {
    // In a split table the key may be known and its value missing.
    PyObject** values = dict_split_values(dict);
    Py_ssize_t entry = steps.back().index;
    if (!values || values[entry]) return false;
    dict_keys_in_r9(dict, checked);
    keep(keys->key_at(entry));
    fail_unless_equal(
        x86::qword_ptr(x86::r9, static_cast<int>(keys->key_offset(entry))),
        reinterpret_cast<uint64_t>(keys->key_at(entry)));
    a_.mov(x86::r9, x86::qword_ptr(x86::rax, kDictValuesOffset));
    a_.cmp(x86::qword_ptr(x86::r9,
                          static_cast<int>(kSplitValuesOffset + 8 * entry)),
           0);
    fail_when(x86::CondCode::kNE);
    return true;
  }
  dict_keys_in_r9(dict, checked);
  if (!absent_in_table(keys, key, &last)) return false;
  pin({kind, source->id, static_cast<int64_t>(last), shape_of(keys), 0});
  return true;
}

// r9: the key table.
bool Emitter::absent_in_table(const DictKeys* keys, PyObject* key,
                              size_t* last) {
  std::vector<ProbeStep> steps;
  if (!probe(keys, key, &steps) || steps.size() > 6 || steps.back().index != -1)
    return false;
  int log2_width = keys->log2_index_bytes - keys->log2_size;
  for (const ProbeStep& step : steps) {
    int offset = static_cast<int>(32 + (step.slot << log2_width));
    int32_t index = static_cast<int32_t>(step.index);
    switch (log2_width) {
      case 0:
        a_.cmp(x86::byte_ptr(x86::r9, offset), index);
        break;
      case 1:
        a_.cmp(x86::word_ptr(x86::r9, offset), index);
        break;
      case 2:
        a_.cmp(x86::dword_ptr(x86::r9, offset), index);
        break;
      default:
        a_.cmp(x86::qword_ptr(x86::r9, offset), index);
        break;
    }
    fail_when(x86::CondCode::kNE);
    *last = step.slot;
    if (step.index < 0) continue;
    if (!step.key) return false;
    // The slot is taken by this other key.
    keep(step.key);
    fail_unless_equal(
        x86::qword_ptr(x86::r9, static_cast<int>(keys->key_offset(step.index))),
        reinterpret_cast<uint64_t>(step.key));
  }
  return true;
}

// ---- instances

void Emitter::instance_dict_in_rax(const Source* object) {
  PyObject* now = value(object);
  PyTypeObject* type = Py_TYPE(now);
  Node& n = node(object);
  if (n.type != type)
    pin({Pin::Kind::kType, object->id, 0, reinterpret_cast<uint64_t>(type)});
  check_type(object, type);
  int offset = kManagedDictOffset;
  if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
    offset =
        static_cast<int>(reinterpret_cast<char*>(_PyObject_GetDictPtr(now)) -
                         reinterpret_cast<char*>(now));
    FJ_CHECK(type->tp_dictoffset > 0, "variable-sized instance");
  }
#if PY_VERSION_HEX >= 0x030D0000
  if ((type->tp_flags & Py_TPFLAGS_INLINE_VALUES) && !n.instance_layout) {
    // With valid inline values the dict is not where reads look.
    if (!instance_storage(now).values) {
      x86::Mem valid = field(object, kInlineValuesOffset);
      valid.setSize(1);
      a_.cmp(valid, 0);
      fail_when(x86::CondCode::kNE);
    }
  }
#endif
  a_.mov(x86::rax, field(object, offset));
  in_rax_ = nullptr;
  fail_if_null(x86::rax);
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
    a_.test(x86::al, 1);  // tagged: inline values
    fail_when(x86::CondCode::kNZ);
  }
#endif
  // (3.13: a dict may exist beside inline values.)
  if (instance_storage(now).values) return;
  if (!n.instance_layout) pin({Pin::Kind::kInstanceLayout, object->id, 0, 2});
  n.instance_layout = true;
}

void Emitter::inline_values_in_r8(const Source* object) {
  PyTypeObject* type = Py_TYPE(value(object));
  Node& n = node(object);
  if (n.type != type)
    pin({Pin::Kind::kType, object->id, 0, reinterpret_cast<uint64_t>(type)});
  check_type(object, type);
#if PY_VERSION_HEX < 0x030C0000
  a_.mov(x86::r8, field(object, kInlineValuesOffset));
  if (!n.instance_layout) fail_if_null(x86::r8);
#elif PY_VERSION_HEX < 0x030D0000
  a_.mov(x86::r8, field(object, kInlineValuesOffset));
  if (!n.instance_layout) {
    a_.test(x86::r8b, 1);
    fail_when(x86::CondCode::kZ);
  }
  a_.inc(x86::r8);
#else
  bring(object);
  if (!n.instance_layout) {
    a_.cmp(x86::byte_ptr(x86::rax, kInlineValuesOffset), 0);
    fail_when(x86::CondCode::kE);
  }
  a_.lea(x86::r8, x86::qword_ptr(x86::rax, static_cast<int>(sizeof(PyObject) +
                                                            sizeof(void*))));
#endif
  if (!n.instance_layout) pin({Pin::Kind::kInstanceLayout, object->id, 0, 1});
  n.instance_layout = true;
}

void Emitter::load_instance_attr(const Source* source) {
  const Source* base = source->base;
  Node& n = node(base);
  if (n.instance_version) {
    node(source).constant = value(source);
    return;
  }
  if (form(base) == Form::kGeneric) return load_step(source);
  PyObject* object = value(base);
  InstanceStorage storage = instance_storage(object);
  if (storage.values) {
    Py_ssize_t entry = keys_find(storage.keys, source->key.get());
    FJ_CHECK(entry >= 0);
    inline_values_in_r8(base);
    a_.mov(x86::rax, x86::qword_ptr(x86::r8, static_cast<int>(8 * entry)));
    fail_if_null(x86::rax);
    return;
  }
  bool managed = Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT;
  if (!storage.dict || !PyDict_CheckExact(storage.dict) ||
      (!managed && Py_TYPE(object)->tp_dictoffset <= 0))
    return load_step(source);
  PyObject* dict = storage.dict;
  bool by_version = form(base) == Form::kVersion && can_use_version(dict);
  Py_ssize_t entry = by_version ? 0 : entry_of(dict, source->key.get());
  if (entry < 0) return load_step(source);
  instance_dict_in_rax(base);
  if (by_version) {
    instance_version(base, dict);
    node(source).constant = value(source);
    return;
  }
  PyObject* stored = dict_keys(dict)->key_at(entry);
  dict_keys_in_r9(dict, &n.instance_shape);
  pin_slot(Pin::Kind::kInstanceSlot, base, dict, entry);
  slot_value(dict, entry, stored, true);
}

// ---- numbers

void Emitter::load_int(const Source* source) {
  int symbol = -1;
  for (size_t i = 0; i < set_.symbols().size(); ++i) {
    if (set_.symbols()[i].source == source) symbol = static_cast<int>(i);
  }
  if (symbol < 0) return;  // only `Exists` guards, which are called
  x86::Mem to = x86::qword_ptr(x86::rcx, 8 * symbol);
  Node& base = node(source->base);
  if (base.tensor_checked) {
    const TensorLayout* layout = tensor_layout();
    bring(source->base);
    a_.mov(x86::r10, x86::qword_ptr(x86::rax, layout->tensor_impl));
    int64_t dim = tensor_fields(value(source->base)).dim;
    if (source->kind == SourceKind::kTensorOffset) {
      a_.mov(x86::r9, x86::qword_ptr(x86::r10, layout->storage_offset));
    } else {
      FJ_CHECK(source->index >= 0 && source->index < dim);
      a_.mov(x86::r9, tensor_number(x86::r10, dim,
                                    source->kind == SourceKind::kTensorStride,
                                    source->index));
    }
    a_.mov(to, x86::r9);
    return;
  }
  if (source->kind == SourceKind::kFloatBits && base.type == &PyFloat_Type) {
    bring(source->base);
    a_.mov(x86::r9, x86::qword_ptr(x86::rax, offsetof(PyFloatObject, ob_fval)));
    a_.mov(to, x86::r9);
    return;
  }
  if (source->kind == SourceKind::kLength) {
    const int offset = length_offset(source->base);
    if (offset >= 0) {
      a_.mov(x86::r9, field(source->base, offset));
      a_.mov(to, x86::r9);
      return;
    }
  }
  bring(source->base);
  a_.mov(x86::rdi, reinterpret_cast<uint64_t>(source));
  a_.mov(x86::rsi, x86::rax);
  a_.lea(x86::rdx, to);
  call(reinterpret_cast<const void*>(predicate_int));
  check_result();
  restore_arguments();
}

// ---- pins

bool pin_is_dead(const Pin& pin, PyObject* value) {
  if (pin.kind == Pin::Kind::kTypeVersion) return !pin_holds(pin, value);
  PyObject* dict = nullptr;
  bool watched = pin.kind == Pin::Kind::kDictWatched ||
                 pin.kind == Pin::Kind::kInstanceWatched;
  if (pin.kind == Pin::Kind::kDictVersion ||
      pin.kind == Pin::Kind::kDictWatched)
    dict = value;
  if (value && (pin.kind == Pin::Kind::kInstanceVersion ||
                pin.kind == Pin::Kind::kInstanceWatched))
    dict = instance_storage(value).dict;
  if (!dict || reinterpret_cast<uint64_t>(dict) != pin.b) return false;
  return (watched ? watched_generation(dict) : dict_version(dict)) != pin.a;
}

bool pin_holds(const Pin& pin, PyObject* value) {
  if (pin.kind == Pin::Kind::kTypeVersion) {
    auto* type = reinterpret_cast<PyTypeObject*>(pin.b);
    return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) &&
           type->tp_version_tag == pin.a;
  }
  if (!value) return false;
  PyObject* dict = value;
  switch (pin.kind) {
    case Pin::Kind::kType:
      return reinterpret_cast<uint64_t>(Py_TYPE(value)) == pin.a;
    case Pin::Kind::kEquals:
      return reinterpret_cast<uint64_t>(value) == pin.a;
    case Pin::Kind::kStorage: {
      TensorFields fields = tensor_fields(value);
      return fields.valid &&
             reinterpret_cast<uint64_t>(fields.storage) == pin.a;
    }
    case Pin::Kind::kInstanceLayout: {
      InstanceStorage storage = instance_storage(value);
      uint64_t layout = storage.values ? 1 : storage.dict ? 2 : 0;
      return layout == pin.a;
    }
    case Pin::Kind::kInstanceVersion:
    case Pin::Kind::kInstanceWatched:
    case Pin::Kind::kInstanceSlot:
    case Pin::Kind::kInstanceAbsent:
      dict = instance_storage(value).dict;
      break;
    default:
      break;
  }
  if (!dict || !PyDict_Check(dict)) return false;
  const DictKeys* keys = dict_keys(dict);
  switch (pin.kind) {
    case Pin::Kind::kDictVersion:
    case Pin::Kind::kInstanceVersion:
      return dict_version(dict) == pin.a;
    case Pin::Kind::kDictWatched:
    case Pin::Kind::kInstanceWatched:
      return reinterpret_cast<uint64_t>(dict) == pin.b &&
             watched_generation(dict) == pin.a;
    case Pin::Kind::kDictSlot:
    case Pin::Kind::kInstanceSlot:
      return shape_of(keys) == pin.a &&
             reinterpret_cast<uint64_t>(keys->key_at(pin.entry)) == pin.b;
    default:
      return shape_of(keys) == pin.a &&
             keys->index_at(static_cast<size_t>(pin.entry)) == -1;
  }
}

}  // namespace framejit

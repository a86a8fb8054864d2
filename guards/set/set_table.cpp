#include "guards/set/set_table.h"

#include <cstring>

namespace framejit {

namespace {

PySetObject* as_set(PyObject* object) {
  return reinterpret_cast<PySetObject*>(object);
}

size_t places_of(const PySetObject* set) { return size_t(set->mask) + 1; }

enum class Place : char { kFree = '.', kLeft = 'x', kUsed = 'o' };

// Where an element was removed CPython leaves a mark with the hash -1, which no
// object has.
Place place_at(const PySetObject* set, size_t i) {
  const setentry& entry = set->table[i];
  if (!entry.key) return Place::kFree;
  return entry.hash == -1 ? Place::kLeft : Place::kUsed;
}

// `to` is empty and has the small table.
bool fill(PySetObject* to, const PySetObject* from) {
  size_t count = places_of(from);
  if (from->table != from->smalltable) {
    auto* table =
        static_cast<setentry*>(PyMem_Malloc(count * sizeof(setentry)));
    if (!table) {
      PyErr_NoMemory();
      return false;
    }
    to->table = table;
  }
  std::memcpy(to->table, from->table, count * sizeof(setentry));
  for (size_t i = 0; i < count; ++i) {
    if (place_at(to, i) == Place::kUsed) Py_INCREF(to->table[i].key);
  }
  to->mask = from->mask;
  to->fill = from->fill;
  to->used = from->used;
  to->finger = from->finger;
  return true;
}

}  // namespace

Ref set_places(PyObject* set) {
  const PySetObject* object = as_set(set);
  size_t count = places_of(object);
  Ref places = Ref::steal(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
  if (!places) return {};
  char* text = PyBytes_AS_STRING(places.get());
  for (size_t i = 0; i < count; ++i) text[i] = char(place_at(object, i));
  return places;
}

bool has_set_places(PyObject* set, PyObject* places) {
  const PySetObject* object = as_set(set);
  size_t count = places_of(object);
  if (size_t(PyBytes_GET_SIZE(places)) != count) return false;
  const char* text = PyBytes_AS_STRING(places);
  for (size_t i = 0; i < count; ++i) {
    if (text[i] != char(place_at(object, i))) return false;
  }
  return true;
}

bool same_set_table(PyObject* a, PyObject* b,
                    bool (*equal)(PyObject*, PyObject*)) {
  const PySetObject *x = as_set(a), *y = as_set(b);
  if (x->mask != y->mask || x->used != y->used || x->fill != y->fill) {
    return false;
  }
  for (size_t i = 0; i < places_of(x); ++i) {
    Place place = place_at(x, i);
    if (place != place_at(y, i)) return false;
    if (place != Place::kUsed) continue;
    if (x->table[i].hash != y->table[i].hash ||
        !equal(x->table[i].key, y->table[i].key)) {
      return false;
    }
  }
  return true;
}

Ref copy_set_table(PyObject* set) {
  Ref copy = Ref::steal(PyFrozenSet_Check(set) ? PyFrozenSet_New(nullptr)
                                               : PySet_New(nullptr));
  if (!copy || !fill(as_set(copy.get()), as_set(set))) return {};
  return copy;
}

bool take_set_table(PyObject* target, PyObject* source) {
  // What goes may have a finalizer that adds to the set.
  do {
    if (PySet_Clear(target) < 0) return false;
  } while (as_set(target)->fill != 0);
  return fill(as_set(target), as_set(source));
}

}  // namespace framejit

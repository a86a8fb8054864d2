#include "guards/emit/watchers.h"

#include <algorithm>
#include <unordered_map>

namespace framejit {

#if PY_VERSION_HEX >= 0x030C0000

// All watched objects of the process, by address. Never destroyed: CPython
// reports the death of dicts until its very end.
class WatchRegistry {
 public:
  static WatchRegistry& get() {
    static auto* registry = new WatchRegistry;
    return *registry;
  }

  bool add(WatchSet* set, void* object, bool is_dict) {
    if (!available_ || !request_id(is_dict)) return false;
    auto [entry, is_new] = records_.try_emplace(object);
    Record& record = entry->second;
    if (is_new) record = {++generation_, is_dict, {}};
    // Again for one that is watched: a class must have a version to be
    // reported, and loses it when it changes.
    if (!start(object, is_dict)) {
      if (is_new) records_.erase(entry);
      return false;
    }
    if (std::find(record.sets.begin(), record.sets.end(), set) ==
        record.sets.end()) {
      record.sets.push_back(set);
      if (is_dict) {
        set->dicts_.push_back(static_cast<PyObject*>(object));
      } else {
        set->types_.push_back(static_cast<PyTypeObject*>(object));
      }
    }
    return true;
  }

  void remove(WatchSet* set, void* object) {
    auto found = records_.find(object);
    // Dead since, perhaps with another object in its place.
    if (found == records_.end() || std::erase(found->second.sets, set) == 0 ||
        !found->second.sets.empty()) {
      return;
    }
    bool is_dict = found->second.is_dict;
    records_.erase(found);
    stop(object, is_dict);
  }

  // The object is about to change, or to die.
  void changed(void* object, bool dies) {
    auto found = records_.find(object);
    if (found == records_.end()) return;
    for (WatchSet* set : found->second.sets) set->flag_ = 0;
    if (dies) {
      records_.erase(found);
    } else {
      found->second.generation = ++generation_;
    }
  }

  uint64_t generation(const void* object) const {
    auto found = records_.find(const_cast<void*>(object));
    return found == records_.end() ? 0 : found->second.generation;
  }

  size_t size() const { return records_.size(); }

  void set_available(bool available) {
    available_ = available;
    if (available) return;
    ErrorGuard keep;
    // Nobody is told of changes any more.
    for (auto& [object, record] : records_) {
      for (WatchSet* set : record.sets) set->flag_ = 0;
      stop(object, record.is_dict);
    }
    records_.clear();
    if (dict_id_ >= 0 && PyDict_ClearWatcher(dict_id_) < 0) PyErr_Clear();
    if (type_id_ >= 0 && PyType_ClearWatcher(type_id_) < 0) PyErr_Clear();
    dict_id_ = type_id_ = kNotAsked;
  }

 private:
  static constexpr int kNotAsked = -1, kNone = -2;
  struct Record {
    uint64_t generation;
    bool is_dict;
    std::vector<WatchSet*> sets;
  };

  static int on_dict(PyDict_WatchEvent event, PyObject* dict, PyObject*,
                     PyObject*) {
    get().changed(dict, event == PyDict_EVENT_DEALLOCATED);
    return 0;
  }
  static int on_type(PyTypeObject* type) {
    get().changed(type, false);
    return 0;
  }

  bool request_id(bool is_dict) {
    int& id = is_dict ? dict_id_ : type_id_;
    if (id != kNotAsked) return id >= 0;
    ErrorGuard keep;
    id = is_dict ? PyDict_AddWatcher(on_dict) : PyType_AddWatcher(on_type);
    if (id >= 0) return true;
    PyErr_Clear();
    id = kNone;
    return false;
  }

  bool start(void* object, bool is_dict) {
    ErrorGuard keep;
    auto* python_object = static_cast<PyObject*>(object);
    int failed = is_dict ? PyDict_Watch(dict_id_, python_object)
                         : PyType_Watch(type_id_, python_object);
    if (failed) PyErr_Clear();
    return !failed;
  }

  void stop(void* object, bool is_dict) {
    ErrorGuard keep;
    auto* python_object = static_cast<PyObject*>(object);
    int id = is_dict ? dict_id_ : type_id_;
    if (id < 0) return;
    int failed = is_dict ? PyDict_Unwatch(id, python_object)
                         : PyType_Unwatch(id, python_object);
    if (failed) PyErr_Clear();  // the interpreter ends
  }

  std::unordered_map<void*, Record> records_;
  uint64_t generation_ = 0;
  int dict_id_ = kNotAsked;
  int type_id_ = kNotAsked;
  bool available_ = true;
};

WatchSet::~WatchSet() {
  for (PyObject* dict : dicts_) WatchRegistry::get().remove(this, dict);
  for (PyTypeObject* type : types_) WatchRegistry::get().remove(this, type);
}

bool WatchSet::add_dict(PyObject* dict) {
  return WatchRegistry::get().add(this, dict, true);
}

bool WatchSet::add_type(PyTypeObject* type) {
  // A metaclass with an mro() of its own takes versions away unreported, and
  // no class of C code says when it is changed.
  if (!Py_IS_TYPE(type, &PyType_Type) ||
      !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    return false;
  }
  return WatchRegistry::get().add(this, type, false);
}

uint64_t watched_generation(const void* object) {
  return WatchRegistry::get().generation(object);
}

size_t num_watched() { return WatchRegistry::get().size(); }

void set_watchers_available(bool available) {
  WatchRegistry::get().set_available(available);
}

#else  // 3.11 has no watchers

WatchSet::~WatchSet() = default;
bool WatchSet::add_dict(PyObject*) { return false; }
bool WatchSet::add_type(PyTypeObject*) { return false; }
uint64_t watched_generation(const void*) { return 0; }
size_t num_watched() { return 0; }
void set_watchers_available(bool) {}

#endif

}  // namespace framejit

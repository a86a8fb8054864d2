#include "guards/set/weak_objects.h"

#include "frame_hook/interjections.h"
#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "guards/set/quiet_callbacks.h"
#include "guards/set/wrapped_functions.h"

namespace framejit {

namespace {

constexpr const char* kCapsuleName = "framejit.guarded";

}  // namespace

bool can_be_weak(PyObject* object) {
  if (PyFunction_Check(object) || PyModule_CheckExact(object)) return true;
  if (PyType_Check(object)) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
  }
  const TensorLayout* layout = tensor_layout();
  return layout && layout->is_tensor && layout->is_tensor(object);
}

// The capsule owns the state, so a callback that is already under way outlives
// the object.
PyObject* WeakObjects::object_died(PyObject* capsule, PyObject*) {
  auto* shared = static_cast<std::shared_ptr<State>*>(
      PyCapsule_GetPointer(capsule, kCapsuleName));
  if (!shared) return nullptr;
  std::shared_ptr<State> state = *shared;
  if (!state->dead) {
    state->dead = true;
    std::function<void()> on_death = std::move(state->on_death);
    if (on_death) on_death();
  }
  Py_RETURN_NONE;
}

WeakObjects::WeakObjects(GuardSet& set, std::function<void()> on_death)
    : state_(std::make_shared<State>()) {
  static PyMethodDef method = {"object_died", &WeakObjects::object_died, METH_O,
                               nullptr};
  add_quiet_callback(&WeakObjects::object_died);
  state_->on_death = std::move(on_death);
  auto* shared = new std::shared_ptr<State>(state_);
  Ref capsule =
      Ref::steal(PyCapsule_New(shared, kCapsuleName, [](PyObject* object) {
        delete static_cast<std::shared_ptr<State>*>(
            PyCapsule_GetPointer(object, kCapsuleName));
      }));
  if (!capsule) delete shared;
  callback_ =
      Ref::steal(capsule ? PyCFunction_New(&method, capsule.get()) : nullptr);
  if (!callback_) {
    drop_error();
    return;  // everything stays strong
  }
  std::vector<Ref> alive;  // until all references are given up
  auto give_up = [&](const Ref& reference) {
    PyObject* object = reference.get();
    if (!object || !can_be_weak(object) || !watch(object)) return;
    alive.push_back(reference);
    given_up_.push_back(&reference);
    Py_DECREF(object);
  };
  struct Last {  // none of them dies before all are watched
    std::vector<Ref>& wrappers;
    ~Last() { wrappers.clear(); }
  } last{wrappers_};
  for (size_t i = 0; i < set.sources().size(); ++i) {
    const Source* source = set.sources().at(i);
    if (source->kind == SourceKind::kConst ||
        source->kind == SourceKind::kDictItem)
      give_up(source->key);
  }
  for (const Guard& guard : set.guards()) {
    if (is_mro_guard(guard)) {
      // The guard holds addresses of classes: none may be used again.
      auto* type = reinterpret_cast<PyTypeObject*>(guard.source->key.get());
      PyObject* mro = type->tp_mro;
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(mro); ++k) {
        PyObject* base = PyTuple_GET_ITEM(mro, k);
        if (can_be_weak(base)) watch(base);
      }
    }
    give_up(guard.object);
    if (give_up_wrapper(guard)) continue;
    give_up(guard.object2);
  }
}

// Its functions are watched in its place; by its address alone it is known from
// here on, and nothing may look into it.
bool WeakObjects::give_up_wrapper(const Guard& guard) {
  PyObject* wrapper = guard.object2.get();
  if (guard.kind != GuardKind::kTypeAttrIs || !wrapper) return false;
  WrappedFunctions functions(wrapper);
  if (!functions.known()) return false;
  for (int i = 0; i < functions.size(); ++i)
    if (functions[i] && !watch(functions[i])) return false;
  const_cast<Guard&>(guard).number = functions.print();
  given_up_.push_back(&guard.object2);
  // (Its class has it: this is not the last reference.)
  wrappers_.push_back(Ref::steal(wrapper));
  return true;
}

WeakObjects::~WeakObjects() {
  // The set's references go without being counted down.
  for (const Ref* reference : given_up_) {
    (void)const_cast<Ref*>(reference)->release();
  }
}

bool WeakObjects::watch(PyObject* object) {
  if (references_.count(object)) return true;
  Ref reference = Ref::steal(PyWeakref_NewRef(object, callback_.get()));
  if (!reference) {
    drop_error();
    return false;
  }
  references_.emplace(object, std::move(reference));
  return true;
}

}  // namespace framejit

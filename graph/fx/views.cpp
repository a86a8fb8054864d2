// What is looked at while the graph may change: the users of a node, and the
// nodes of a graph.
#include "graph/fx/objects.h"

namespace framejit::graph::fx {

namespace {

PyTypeObject* g_users_type = nullptr;
PyTypeObject* g_users_iterator_type = nullptr;
PyTypeObject* g_node_iterator_type = nullptr;

// ---- users: a mapping from nodes to None, always as it is now

struct UsersObject {
  PyObject_HEAD PyObject* node;
};
struct UsersIterator {
  PyObject_HEAD PyObject* node;
  size_t at;
  uint64_t changes;
};

PyObject*& node_of(PyObject* self) {
  return reinterpret_cast<UsersObject*>(self)->node;
}
int traverse_view(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(node_of(self));
  return 0;
}
int clear_view(PyObject* self) {
  Py_CLEAR(node_of(self));
  return 0;
}
void deallocate_view(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_view(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

const UseList& uses_of(PyObject* self) {
  static const UseList* const none = new UseList;
  NodeObject* node = as_node(node_of(self));
  return node && node->node ? node->node->outputs[0]->users : *none;
}

Py_ssize_t users_length(PyObject* self) {
  return static_cast<Py_ssize_t>(uses_of(self).num_users());
}
int users_contains(PyObject* self, PyObject* object) {
  if (!is_node(object)) return 0;
  Node* node = as_node(object)->node;
  return node && uses_of(self).contains(node);
}

Ref users_dict(PyObject* self) {
  NoCollection steady;
  Ref dict = checked(PyDict_New());
  PyObject* graph = as_node(node_of(self))->graph;
  for (const UseList::Entry& entry : uses_of(self).entries())
    if (entry.node)
      checked(PyDict_SetItem(dict.get(), as_object(face_of(graph, entry.node)),
                             Py_None));
  return dict;
}
PyObject* users_item(PyObject* self, PyObject* key) {
  if (users_contains(self, key)) Py_RETURN_NONE;
  PyErr_SetObject(PyExc_KeyError, key);
  return nullptr;
}
PyObject* users_repr(PyObject* self) {
  return object_or_null(
      [&] { return checked(PyObject_Repr(users_dict(self).get())); });
}
PyObject* users_compare(PyObject* self, PyObject* other, int op) {
  return object_or_null([&]() -> Ref {
    if (op != Py_EQ && op != Py_NE) return Ref::borrow(Py_NotImplemented);
    Ref theirs = Py_IS_TYPE(other, g_users_type) ? users_dict(other)
                                                 : Ref::borrow(other);
    return checked(
        PyObject_RichCompare(users_dict(self).get(), theirs.get(), op));
  });
}
// Methods that a dict of them has.
template <PyObject* (*Method)(PyObject*)>
PyObject* users_part(PyObject* self, PyObject*) {
  return object_or_null(
      [&] { return checked(Method(users_dict(self).get())); });
}
PyObject* users_get(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count < 1 || count > 2) {
    PyErr_SetString(PyExc_TypeError, "get takes a key and a default");
    return nullptr;
  }
  PyObject* answer =
      count == 2 && !users_contains(self, args[0]) ? args[1] : Py_None;
  Py_INCREF(answer);
  return answer;
}
PyObject* users_copy(PyObject* self, PyObject*) {
  return object_or_null([&] { return users_dict(self); });
}
PyObject* dict_reversed(PyObject* dict) {
  return PyObject_CallMethod(dict, "__reversed__", nullptr);
}
PyObject* dict_keys(PyObject* dict) {
  return PyObject_CallMethod(dict, "keys", nullptr);
}
PyObject* dict_values(PyObject* dict) {
  return PyObject_CallMethod(dict, "values", nullptr);
}
PyObject* dict_items(PyObject* dict) {
  return PyObject_CallMethod(dict, "items", nullptr);
}
PyObject* users_iterate(PyObject* self) {
  return object_or_null([&] {
    Ref made =
        checked(g_users_iterator_type->tp_alloc(g_users_iterator_type, 0));
    auto* iterator = reinterpret_cast<UsersIterator*>(made.get());
    iterator->node = node_of(self);
    Py_INCREF(iterator->node);
    iterator->changes = uses_of(self).changes();
    return made;
  });
}

PyObject* next_user(PyObject* self) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    auto* iterator = reinterpret_cast<UsersIterator*>(self);
    if (!iterator->node) return nullptr;
    const UseList& users = uses_of(self);
    if (users.changes() != iterator->changes)
      raise(PyExc_RuntimeError, "the users changed during iteration");
    const auto& entries = users.entries();
    while (iterator->at < entries.size() && !entries[iterator->at].node)
      ++iterator->at;
    if (iterator->at == entries.size()) return nullptr;
    PyObject* graph = as_node(iterator->node)->graph;
    PyObject* found = as_object(face_of(graph, entries[iterator->at++].node));
    Py_INCREF(found);
    return found;
  });
}

PyMethodDef g_users_methods[] = {
    {"keys", users_part<dict_keys>, METH_NOARGS, "The users there are now."},
    {"values", users_part<dict_values>, METH_NOARGS, "None for each user."},
    {"items", users_part<dict_items>, METH_NOARGS, "(user, None) of each."},
    {"copy", users_copy, METH_NOARGS, "A dict of the users there are now."},
    {"__reversed__", users_part<dict_reversed>, METH_NOARGS, nullptr},
    {"get", as_function(users_get), METH_FASTCALL,
     "None of a user, else the default."},
    {}};

PyType_Slot g_users_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_view)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_view)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_view)},
    {Py_tp_repr, reinterpret_cast<void*>(users_repr)},
    {Py_tp_richcompare, reinterpret_cast<void*>(users_compare)},
    {Py_tp_hash, reinterpret_cast<void*>(PyObject_HashNotImplemented)},
    {Py_tp_iter, reinterpret_cast<void*>(users_iterate)},
    {Py_tp_methods, g_users_methods},
    {Py_mp_length, reinterpret_cast<void*>(users_length)},
    {Py_mp_subscript, reinterpret_cast<void*>(users_item)},
    {Py_sq_contains, reinterpret_cast<void*>(users_contains)},
    {0, nullptr}};
PyType_Slot g_users_iterator_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_view)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_view)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_view)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next_user)},
    {0, nullptr}};

// ---- the nodes of a graph
//
// What comes next is what stands beside the last node given, wherever that is
// by now: nodes that are inserted behind it are seen, erased ones are not.

struct NodeIterator {
  PyObject_HEAD PyObject*
      node;  // the last one given; the root in the beginning and the end
  bool backwards, done;
};

PyObject* next_node(PyObject* self) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    auto* iterator = reinterpret_cast<NodeIterator*>(self);
    if (iterator->done || !iterator->node) return nullptr;
    Ref next = Ref::borrow(
        as_object(neighbour(as_node(iterator->node), iterator->backwards)));
    if (as_node(next.get())->state == NodeObject::kRoot) {
      iterator->done = true;
      return nullptr;
    }
    Ref last = Ref::steal(std::exchange(iterator->node, next.new_reference()));
    return next.release();
  });
}

PyType_Slot g_node_iterator_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_view)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_view)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_view)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next_node)},
    {0, nullptr}};

PyTypeObject* make_type(PyObject* module, const char* name, size_t size,
                        PyType_Slot* slots) {
  std::string full = std::string("framejit._C._fx.") + name;
  PyType_Spec spec = {full.c_str(), static_cast<int>(size), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  Ref type = checked(PyType_FromSpec(&spec));
  checked(PyModule_AddObjectRef(module, name, type.get()));
  return reinterpret_cast<PyTypeObject*>(type.release());  // for good
}

}  // namespace

Ref users_view(NodeObject* node) {
  Ref made = checked(g_users_type->tp_alloc(g_users_type, 0));
  node_of(made.get()) = as_object(node);
  Py_INCREF(as_object(node));
  return made;
}

Ref node_iterator(PyObject* graph, bool backwards) {
  Ref made = checked(g_node_iterator_type->tp_alloc(g_node_iterator_type, 0));
  auto* iterator = reinterpret_cast<NodeIterator*>(made.get());
  iterator->node = as_object(root_of(graph));
  Py_INCREF(iterator->node);
  iterator->backwards = backwards;
  return made;
}

void add_views(PyObject* module) {
  g_users_type = make_type(module, "Users", sizeof(UsersObject), g_users_slots);
  g_users_iterator_type = make_type(
      module, "UsersIterator", sizeof(UsersIterator), g_users_iterator_slots);
  g_node_iterator_type = make_type(module, "NodeIterator", sizeof(NodeIterator),
                                   g_node_iterator_slots);
}

}  // namespace framejit::graph::fx

#include "graph/fx/arguments.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/utils/tensor_layouts.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace framejit::graph::fx {

namespace {

class Depth {
 public:
  Depth() {
    if (Py_EnterRecursiveCall(" in the arguments of a node")) throw Raised{};
  }
  ~Depth() { Py_LeaveRecursiveCall(); }
};

// A named tuple is made by its class, of its fields.
bool is_named_tuple(PyObject* tuple) {
  if (PyTuple_CheckExact(tuple)) return false;
  static PyObject* const fields = PyUnicode_InternFromString("_fields");
  int found = PyObject_HasAttr(tuple, fields);
  return found == 1;
}

}  // namespace

bool is_container(PyObject* object) {
  return PyTuple_Check(object) || PyList_Check(object) ||
         PyDict_Check(object) || PySlice_Check(object);
}

Arg ToArg::convert(PyObject* object) {
  if (object == Py_None) return Arg();
  if (is_node(object)) return node(object);
  if (is_container(object)) return tree(object);
  return leaf(object);
}

Arg ToArg::node(PyObject* object) const {
  NodeObject* node = as_node(object);
  if (node->state != NodeObject::kInGraph || node->graph != graph_)
    return Arg(Ref::borrow(object));
  return Arg(node->node->outputs[0].get());
}

Arg ToArg::leaf(PyObject* object) {
  if (PyBool_Check(object)) return Arg(object == Py_True);
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow) return Arg(static_cast<int64_t>(value));
  } else if (PyFloat_CheckExact(object)) {
    return Arg(PyFloat_AS_DOUBLE(object));
  } else if (PyComplex_CheckExact(object)) {
    Py_complex value = PyComplex_AsCComplex(object);
    return Arg(c10::complex<double>(value.real, value.imag));
  } else if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(object, &size))
      return Arg(std::string(text, size));
    PyErr_Clear();  // lone surrogates
  } else if (THPDtype_Check(object)) {
    return Arg(reinterpret_cast<THPDtype*>(object)->scalar_type);
  } else if (THPDevice_Check(object)) {
    return Arg(reinterpret_cast<THPDevice*>(object)->device);
  } else if (THPLayout_Check(object)) {
    return Arg(reinterpret_cast<THPLayout*>(object)->layout);
  } else if (THPMemoryFormat_Check(object)) {
    return Arg(reinterpret_cast<THPMemoryFormat*>(object)->memory_format);
  }
  return Arg(Ref::borrow(object));
}

Arg ToArg::tree(PyObject* object) {
  Depth depth;
  if (PyTuple_Check(object)) {
    Arg::Tuple out;
    // (torch.Size and such become plain tuples.)
    if (is_named_tuple(object))
      out.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      out.items.push_back(convert(PyTuple_GET_ITEM(object, i)));
    return Arg(std::move(out));
  }
  if (PyList_Check(object)) {
    Arg::List out;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
      out.items.push_back(convert(PyList_GET_ITEM(object, i)));
    return Arg(std::move(out));
  }
  if (PyDict_Check(object)) {
    Arg::Dict out;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) {
      Arg key_arg = is_container(key) || is_node(key) ? Arg(Ref::borrow(key))
                    : key == Py_None                  ? Arg()
                                                      : leaf(key);
      out.items.emplace_back(std::move(key_arg), convert(value));
    }
    return Arg(std::move(out));
  }
  auto* raw = reinterpret_cast<PySliceObject*>(object);
  auto out = std::make_shared<Arg::Slice>();
  out->start = convert(raw->start);
  out->stop = convert(raw->stop);
  out->step = convert(raw->step);
  return Arg(std::move(out));
}

namespace {

class ToPython {
 public:
  explicit ToPython(PyObject* graph) : graph_(graph) {}

  Ref convert(const Arg& arg) {
    return std::visit([&](const auto& held) { return make(held); }, arg.value);
  }

 private:
  Ref make(const Arg::None&) { return Ref::borrow(Py_None); }
  Ref make(Value* value) {
    return Ref::borrow(as_object(face_of(graph_, value->node)));
  }
  Ref make(bool value) { return Ref::borrow(value ? Py_True : Py_False); }
  Ref make(int64_t value) { return checked(PyLong_FromLongLong(value)); }
  Ref make(double value) { return checked(PyFloat_FromDouble(value)); }
  Ref make(const c10::complex<double>& value) {
    return checked(PyComplex_FromDoubles(value.real(), value.imag()));
  }
  Ref make(const std::string& value) { return text_object(value); }
  Ref make(const Expr& value) { return text_object(value.str()); }
  Ref make(c10::ScalarType value) {
    return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(value)));
  }
  Ref make(const c10::Device& value) { return checked(THPDevice_New(value)); }
  Ref make(c10::Layout value) {
    return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPLayout(value)));
  }
  Ref make(c10::MemoryFormat value) {
    return Ref::borrow(torch::utils::getTHPMemoryFormat(value));
  }
  Ref make(const Ref& value) { return value ? value : Ref::borrow(Py_None); }
  Ref make(const Arg::List& list) {
    Ref items = checked(PyList_New(list.items.size()));
    for (size_t i = 0; i < list.items.size(); ++i)
      PyList_SET_ITEM(items.get(), i, convert(list.items[i]).release());
    return checked(PyObject_CallOneArg(
        reinterpret_cast<PyObject*>(g_classes.list), items.get()));
  }
  Ref make(const Arg::Tuple& tuple) {
    Ref out = tuple_of(tuple.items);
    if (!tuple.type) return out;
    return checked(PyObject_CallObject(tuple.type.get(), out.get()));
  }
  Ref make(const Arg::Dict& dict) {
    Ref out = checked(PyDict_New());
    for (const auto& [key, value] : dict.items) {
      Ref python_key = convert(key);
      Ref python_value = convert(value);
      checked(PyDict_SetItem(out.get(), python_key.get(), python_value.get()));
    }
    return immutable(out);
  }
  Ref make(const std::shared_ptr<Arg::Slice>& slice) {
    Ref start = convert(slice->start);
    Ref stop = convert(slice->stop);
    Ref step = convert(slice->step);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }

 public:
  Ref tuple_of(const std::vector<Arg>& items) {
    Ref out = checked(PyTuple_New(items.size()));
    for (size_t i = 0; i < items.size(); ++i)
      PyTuple_SET_ITEM(out.get(), i, convert(items[i]).release());
    return out;
  }
  static Ref immutable(const Ref& dict) {
    return checked(PyObject_CallOneArg(
        reinterpret_cast<PyObject*>(g_classes.dict), dict.get()));
  }

 private:
  PyObject* graph_;
};

}  // namespace

Arg to_arg(PyObject* graph, PyObject* object) {
  return ToArg(graph).convert(object);
}

Arguments to_arguments(PyObject* graph, PyObject* args, PyObject* kwargs) {
  Arguments out;
  ToArg convert(graph);
  if (args && args != Py_None) {
    if (!PyTuple_Check(args))
      raise(PyExc_AssertionError,
            std::string("args must be a tuple, got ") + Py_TYPE(args)->tp_name);
    Py_ssize_t size = PyTuple_GET_SIZE(args);
    out.args.reserve(size);
    for (Py_ssize_t i = 0; i < size; ++i)
      out.args.push_back(convert.convert(PyTuple_GET_ITEM(args, i)));
  }
  if (kwargs && kwargs != Py_None) {
    if (!PyDict_Check(kwargs))
      raise(PyExc_AssertionError, std::string("kwargs must be a dict, got ") +
                                      Py_TYPE(kwargs)->tp_name);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(kwargs, &position, &key, &value))
      out.kwargs.emplace_back(text_of(key), convert.convert(value));
  }
  return out;
}

Ref to_python(PyObject* graph, const Arg& arg) {
  return ToPython(graph).convert(arg);
}

Ref python_args(PyObject* graph, Node& node) {
  NoCollection steady;
  if (!node.python_args) node.python_args = ToPython(graph).tuple_of(node.args);
  return node.python_args;
}

Ref python_kwargs(PyObject* graph, Node& node) {
  if (node.kwargs.empty()) return Ref::borrow(g_classes.no_kwargs);
  if (!node.python_kwargs) {
    NoCollection steady;
    Ref out = checked(PyDict_New());
    for (const auto& [name, arg] : node.kwargs) {
      Ref value = to_python(graph, arg);
      checked(PyDict_SetItem(out.get(), text_object(name).get(), value.get()));
    }
    node.python_kwargs = ToPython::immutable(out);
  }
  return node.python_kwargs;
}

Arg map_values(const Arg& arg, const std::function<Arg(Value*)>& f) {
  auto all = [&](const std::vector<Arg>& items) {
    std::vector<Arg> out;
    out.reserve(items.size());
    for (const Arg& item : items) out.push_back(map_values(item, f));
    return out;
  };
  if (auto* value = std::get_if<Value*>(&arg.value)) return f(*value);
  if (auto* list = std::get_if<Arg::List>(&arg.value))
    return Arg(Arg::List{all(list->items)});
  if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value))
    return Arg(Arg::Tuple{all(tuple->items), tuple->type});
  if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
    Arg::Dict out;
    for (const auto& [key, item] : dict->items)
      out.items.emplace_back(key, map_values(item, f));
    return Arg(std::move(out));
  }
  if (auto* slice = std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value)) {
    auto out = std::make_shared<Arg::Slice>();
    out->start = map_values((*slice)->start, f);
    out->stop = map_values((*slice)->stop, f);
    out->step = map_values((*slice)->step, f);
    return Arg(std::move(out));
  }
  return arg;
}

void for_each_object(const Arg& arg, const std::function<void(PyObject*)>& f) {
  if (auto* object = std::get_if<Ref>(&arg.value)) {
    if (*object) f(object->get());
  } else if (auto* list = std::get_if<Arg::List>(&arg.value)) {
    for (const Arg& item : list->items) for_each_object(item, f);
  } else if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
    if (tuple->type) f(tuple->type.get());
    for (const Arg& item : tuple->items) for_each_object(item, f);
  } else if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
    for (const auto& [key, item] : dict->items) {
      for_each_object(key, f);
      for_each_object(item, f);
    }
  } else if (auto* slice =
                 std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value)) {
    for_each_object((*slice)->start, f);
    for_each_object((*slice)->stop, f);
    for_each_object((*slice)->step, f);
  }
}

// ---- map_arg and map_aggregate, of Python objects

namespace {

// f is called for every leaf, or only for Nodes.
Ref mapped(PyObject* object, PyObject* f, bool only_nodes) {
  if (!is_container(object)) {
    if (only_nodes && !is_node(object)) return Ref::borrow(object);
    return checked(PyObject_CallOneArg(f, object));
  }
  Depth depth;
  if (PyTuple_Check(object)) {
    Py_ssize_t size = PyTuple_GET_SIZE(object);
    Ref out = checked(PyTuple_New(size));
    for (Py_ssize_t i = 0; i < size; ++i)
      PyTuple_SET_ITEM(
          out.get(), i,
          mapped(PyTuple_GET_ITEM(object, i), f, only_nodes).release());
    if (!is_named_tuple(object)) return out;
    return checked(PyObject_CallObject(
        reinterpret_cast<PyObject*>(Py_TYPE(object)), out.get()));
  }
  if (PyList_Check(object)) {
    Ref out = checked(PyList_New(0));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      Ref kept = Ref::borrow(PyList_GET_ITEM(object, i));
      checked(
          PyList_Append(out.get(), mapped(kept.get(), f, only_nodes).get()));
    }
    return checked(PyObject_CallOneArg(
        reinterpret_cast<PyObject*>(g_classes.list), out.get()));
  }
  if (PyDict_Check(object)) {
    Ref out = checked(PyDict_New());
    Ref items = checked(PyDict_Items(object));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* item = PyList_GET_ITEM(items.get(), i);
      Ref value = mapped(PyTuple_GET_ITEM(item, 1), f, only_nodes);
      checked(
          PyDict_SetItem(out.get(), PyTuple_GET_ITEM(item, 0), value.get()));
    }
    return ToPython::immutable(out);
  }
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  Ref start = mapped(slice->start, f, only_nodes);
  Ref stop = mapped(slice->stop, f, only_nodes);
  Ref step = mapped(slice->step, f, only_nodes);
  return checked(PySlice_New(start.get(), stop.get(), step.get()));
}

PyObject* map_function(PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames, bool only_nodes) {
  return object_or_null([&] {
    static const char* const kNames[] = {"a", "fn"};
    PyObject* in[2];
    read_arguments(only_nodes ? "map_arg" : "map_aggregate", kNames, 2, 2, args,
                   nargs, kwnames, in);
    if (!PyCallable_Check(in[1]))
      raise(PyExc_AssertionError, "fn must be a callable");
    return mapped(in[0], in[1], only_nodes);
  });
}

PyObject* map_arg(PyObject*, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* kwnames) {
  return map_function(args, nargs, kwnames, true);
}
PyObject* map_aggregate(PyObject*, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames) {
  return map_function(args, nargs, kwnames, false);
}

PyMethodDef kMapFunctions[] = {
    {"map_arg", as_function(map_arg), kFast,
     "Apply fn to each Node in an argument: lists, tuples, dicts and slices "
     "keep their structure."},
    {"map_aggregate", as_function(map_aggregate), kFast,
     "Apply fn to each object in an argument that is no container."},
    {}};

}  // namespace

void add_argument_functions(PyObject* module) {
  checked(PyModule_AddFunctions(module, kMapFunctions));
}

}  // namespace framejit::graph::fx

#include "framejit/csrc/frame_choice.h"

#include <ATen/record_function.h>
#include <fnmatch.h>

#include <array>
#include <string>
#include <string_view>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"
#include "frame_hook/options.h"
#include "frame_hook/python_text.h"
#include "frame_hook/script_mode.h"
#include "graph/tensors/tensor_check.h"
#include "guards/set/object_layout.h"

namespace framejit {
namespace {

// ---- places

// Where library code lives, asked once.
struct LibraryPaths {
  std::string standard;
  std::string torch;
  std::string framejit;
};

std::string package_directory(const char* module) {
  Ref package = Ref::steal(PyImport_ImportModule(module));
  Ref file = package
                 ? Ref::steal(PyObject_GetAttrString(package.get(), "__file__"))
                 : Ref();
  drop_error();
  std::string path = text_of(file.get());
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(0, slash + 1);
}

const LibraryPaths& library_paths() {
  static const auto* paths =
      new LibraryPaths{package_directory("os"), package_directory("torch"),
                       package_directory("framejit")};
  return *paths;
}

bool is_one_of(std::string_view name, const auto& names) {
  for (std::string_view each : names) {
    if (name == each) return true;
  }
  return false;
}

// Folders of torch whose functions run the user's under a tracer or compiler of
// their own, or for which the user asked not to be compiled.
constexpr std::array<std::string_view, 14> kOtherTracers = {
    "_dynamo", "_inductor",    "_functorch",
    "_export", "export",       "fx",
    "jit",     "onnx",         "_higher_order_ops",
    "package", "quantization", "utils/tensorboard",
    "_lazy",   "_subclasses"};

CodeVerdict judge_torch_file(std::string_view file) {
  // Calls of what was traced: the tracer is done by then.
  if (file == "fx/graph_module.py") return CodeVerdict::kSkip;
  for (std::string_view folder : kOtherTracers) {
    if (file.starts_with(folder) && file.size() > folder.size() &&
        (file[folder.size()] == '/' || file[folder.size()] == '.')) {
      return CodeVerdict::kSuspend;
    }
  }
  // Layers, but not the machinery that calls them.
  bool layer =
      file.starts_with("nn/modules/") && file != "nn/modules/module.py";
  return layer ? CodeVerdict::kTensors : CodeVerdict::kSkip;
}

// What a worker of a DataLoader runs, first of all and for good. It does a few
// operations on one sample at a time, which each worker would compile, and warn
// of, anew. (framejit/_script.py sees workers made by fork() before this does;
// those that are not start their mode themselves.)
bool is_loop_of_worker(const std::string& file, const std::string& name) {
  return name == "_worker_loop" &&
         file == library_paths().torch + "utils/data/_utils/worker.py";
}

int end_mode(void*) {
  stop_script_mode();
  return 0;
}

// Packages that handle the user's tensors and functions without computing.
constexpr std::array<std::string_view, 25> kTools = {
    "_pytest",       "pytest",
    "pluggy",        "hypothesis",
    "numpy",         "coverage",
    "debugpy",       "pydevd",
    "IPython",       "ipykernel",
    "pip",           "setuptools",
    "pkg_resources", "_distutils_hack",
    "mypy",          "tqdm",
    "pandas",        "typing_extensions",
    "sympy",         "mpmath",
    "networkx",      "jinja2",
    "markupsafe",    "filelock",
    "fsspec"};

// "…/site-packages/numpy/core/x.py" -> "numpy".
std::string_view installed_package(std::string_view file) {
  size_t at = file.rfind("-packages/");
  if (at == std::string_view::npos) return {};
  std::string_view rest = file.substr(at + 10);
  return rest.substr(0, rest.find_first_of("/."));
}

CodeVerdict judge_file(const std::string& file) {
  if (file.starts_with("<frozen")) return CodeVerdict::kSkip;
  const LibraryPaths& paths = library_paths();
  if (!paths.framejit.empty() && file.starts_with(paths.framejit)) {
    return CodeVerdict::kSkip;
  }
  if (!paths.torch.empty() && file.starts_with(paths.torch)) {
    return judge_torch_file(std::string_view(file).substr(paths.torch.size()));
  }
  std::string_view package = installed_package(file);
  if (!package.empty()) {
    return is_one_of(package, kTools) ? CodeVerdict::kSkip
                                      : CodeVerdict::kTensors;
  }
  // site-packages lies inside the standard library's folder.
  return file.starts_with(paths.standard) ? CodeVerdict::kSkip
                                          : CodeVerdict::kTensors;
}

// Generated code ("<string>": what dataclasses and named tuples consist of) is
// where the module is that it belongs to.
std::string place_of(PyObject* function, const std::string& file) {
  if (!file.starts_with("<") || file.starts_with("<frozen")) return file;
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  if (!PyDict_CheckExact(globals)) return file;
  PyObject* found = PyDict_GetItemString(globals, "__file__");
  if (found) return text_of(found);
  PyObject* name = PyDict_GetItemString(globals, "__name__");
  return text_of(name).starts_with("namedtuple_") ? "<frozen namedtuple>"
                                                  : file;
}

// ---- names

// Run once per object, or for something else than to compute.
constexpr std::array<std::string_view, 22> kNotWorkers = {
    "__init__",     "__new__",          "__del__",       "__init_subclass__",
    "__repr__",     "__str__",          "__format__",    "__hash__",
    "__eq__",       "__ne__",           "__len__",       "__contains__",
    "__getattr__",  "__getattribute__", "__setattr__",   "__getstate__",
    "__setstate__", "__reduce__",       "__reduce_ex__", "__copy__",
    "__deepcopy__", "reset_parameters"};

bool is_torch_object(PyObject* object) {
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    if (!name) drop_error();
    std::string_view text = name ? name : "";
    return text == "torch" || text.starts_with("torch.");
  }
  // Functions and classes of torch by where they say they come from.
  PyObject* from = nullptr;
  if (PyFunction_Check(object)) {
    from = reinterpret_cast<PyFunctionObject*>(object)->func_module;
  } else if (PyCFunction_Check(object)) {
    from = reinterpret_cast<PyCFunctionObject*>(object)->m_module;
  }
  std::string module = text_of(from);
  return module == "torch" || module.starts_with("torch.");
}

// Does the code name a global that is torch's? Reads the dict, runs nothing.
bool names_torch(PyObject* function, PyObject* code) {
  PyObject* globals = PyFunction_GET_GLOBALS(function);
  PyObject* names = reinterpret_cast<PyCodeObject*>(code)->co_names;
  if (!PyDict_CheckExact(globals)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* value = nullptr;
    if (dict_find(globals, PyTuple_GET_ITEM(names, i), &value) ==
            Lookup::kFound &&
        is_torch_object(value)) {
      return true;
    }
  }
  return false;
}

bool glob(std::string_view pattern, const std::string& text) {
  return fnmatch(std::string(pattern).c_str(), text.c_str(), 0) == 0;
}

bool file_matches(std::string_view pattern, const std::string& file) {
  if (glob(pattern, file)) return true;
  // "train.py" and "models/net.py" mean the end of the path.
  return !pattern.starts_with('/') && glob("*/" + std::string(pattern), file);
}

bool one_matches(std::string_view pattern, const std::string& module,
                 const std::string& file, const std::string& name) {
  size_t colon = pattern.rfind(':');
  std::string_view place = pattern.substr(0, colon);
  bool here = glob(place, module) || glob(std::string(place) + ".*", module);
  if (colon == std::string_view::npos) return here;
  std::string_view function = pattern.substr(colon + 1);
  size_t dot = name.rfind('.');
  return (here || file_matches(place, file)) &&
         (glob(function, name) ||
          (dot != std::string::npos && glob(function, name.substr(dot + 1))));
}

// ---- arguments

bool holds_tensor(PyObject* object, int depth);

bool dict_holds_tensor(PyObject* dict, int depth) {
  Py_ssize_t position = 0;
  PyObject* value = nullptr;
  for (int seen = 0; seen < 16 && PyDict_Next(dict, &position, nullptr, &value);
       ++seen) {
    if (holds_tensor(value, depth - 1)) return true;
  }
  return false;
}

// Looks a few items deep: a tensor further down is not what a frame works on,
// and if it is, nothing is lost but speed.
bool holds_tensor(PyObject* object, int depth) {
  PyTypeObject* type = Py_TYPE(object);
  if (object == Py_None || type == &PyLong_Type || type == &PyUnicode_Type ||
      type == &PyFloat_Type || type == &PyBool_Type) {
    return false;
  }
  if (graph::is_tensor_object(object)) return true;
  if (depth <= 0) return false;
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < count && i < 8; ++i) {
      if (items[i] && holds_tensor(items[i], depth - 1)) return true;
    }
    return false;
  }
  return PyDict_CheckExact(object) && dict_holds_tensor(object, depth);
}

// Attributes of the object whose method is called.
bool instance_holds_tensor(PyObject* object) {
  if (PyType_Check(object) || PyModule_Check(object)) return false;
  InstanceStorage storage = instance_storage(object);
  if (storage.values && storage.keys) {
    Py_ssize_t count = storage.keys->num_entries;
    for (Py_ssize_t i = 0; i < count && i < 32; ++i) {
      PyObject* value = storage.values[i];
      if (value && graph::is_tensor_object(value)) return true;
    }
    return false;
  }
  return storage.dict && PyDict_Check(storage.dict) &&
         dict_holds_tensor(storage.dict, 1);
}

bool slots_hold_tensor(PyObject* const* slots, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] && holds_tensor(slots[i], 3)) return true;
  }
  return count > 0 && slots[0] && instance_holds_tensor(slots[0]);
}

// ---- waking

at::CallbackHandle watcher = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> on_operation(const at::RecordFunction&) {
  wake_script_soon();
  return nullptr;
}

void watch() {
  if (watcher != at::INVALID_CALLBACK_HANDLE) return;
  watcher = at::addGlobalCallback(at::RecordFunctionCallback(on_operation)
                                      .scopes({at::RecordScope::FUNCTION}));
}

void unwatch() {
  if (watcher == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(watcher);
  watcher = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

bool matches_only(std::string_view list, const std::string& module,
                  const std::string& file, const std::string& qualified_name) {
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (!word.empty() && one_matches(word, module, file, qualified_name)) {
      return true;
    }
  }
  return false;
}

CodeVerdict judge_code(PyObject* function, PyObject* code) {
  auto* code_object = reinterpret_cast<PyCodeObject*>(code);
  auto* function_object = reinterpret_cast<PyFunctionObject*>(function);
  std::string file = text_of(code_object->co_filename);
  // The frame that is judged is about to run: the mode ends behind its start.
  if (is_loop_of_worker(file, text_of(code_object->co_name)))
    Py_AddPendingCall(end_mode, nullptr);
  CodeVerdict verdict = judge_file(place_of(function, file));
  if (verdict != CodeVerdict::kTensors) return verdict;
  if (internals::is_generator_like(code_object)) return CodeVerdict::kSkip;
  const std::string& only = options().only;
  if (!only.empty() &&
      !matches_only(only, text_of(function_object->func_module), file,
                    text_of(code_object->co_qualname))) {
    return CodeVerdict::kSkip;
  }
  if (is_one_of(text_of(code_object->co_name), kNotWorkers)) {
    return CodeVerdict::kCallee;
  }
  return names_torch(function, code) ? CodeVerdict::kLibrary
                                     : CodeVerdict::kTensors;
}

const ScriptPolicy& script_policy() {
  static const ScriptPolicy policy{slots_hold_tensor, watch, unwatch};
  return policy;
}

}  // namespace framejit

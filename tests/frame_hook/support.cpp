#include "tests/frame_hook/support.h"

namespace framejit::testing {

int FakeEntry::alive = 0;

std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref owned[] = {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
  Ref text = Ref::steal(PyObject_Str(value));
  return std::string(reinterpret_cast<PyTypeObject*>(type)->tp_name) + ": " +
         PyUnicode_AsUTF8(text.get());
}

Namespace::Namespace(const std::string& source)
    : dict_(Ref::steal(PyDict_New())) {
  set("__builtins__", PyEval_GetBuiltins());
  Ref name = Ref::steal(PyUnicode_FromString("test_module"));
  set("__name__", name.get());
  if (!source.empty()) run(source);
}

void Namespace::run(const std::string& source) {
  Ref result = Ref::steal(
      PyRun_String(source.c_str(), Py_file_input, dict_.get(), dict_.get()));
  if (!result) ADD_FAILURE() << source << "\n" << take_error();
}

Ref Namespace::eval(const std::string& expression) {
  return Ref::steal(PyRun_String(expression.c_str(), Py_eval_input, dict_.get(),
                                 dict_.get()));
}

std::string Namespace::repr(const std::string& expression) {
  Ref value = eval(expression);
  if (!value) return take_error();
  Ref text = Ref::steal(PyObject_Repr(value.get()));
  return text ? PyUnicode_AsUTF8(text.get()) : take_error();
}

Ref Namespace::get(const std::string& name) {
  return Ref::borrow(PyDict_GetItemString(dict_.get(), name.c_str()));
}

void Namespace::set(const std::string& name, PyObject* value) {
  ASSERT_EQ(PyDict_SetItemString(dict_.get(), name.c_str(), value), 0);
}

int always(PyObject* const*, PyObject*, PyObject**, int64_t*) { return 1; }
int never(PyObject* const*, PyObject*, PyObject**, int64_t*) { return 0; }
int gather_first(PyObject* const* args, PyObject*, PyObject** objects,
                 int64_t*) {
  objects[0] = args[0];
  return 1;
}
int first_is_int(PyObject* const* args, PyObject*, PyObject** objects,
                 int64_t*) {
  objects[0] = args[0];
  return PyLong_CheckExact(args[0]);
}
int first_is_str(PyObject* const* args, PyObject*, PyObject** objects,
                 int64_t*) {
  objects[0] = args[0];
  return PyUnicode_CheckExact(args[0]);
}

std::shared_ptr<FakeEntry> value_entry(
    PredicateFn predicate, std::function<PyObject*(PyObject*)> value) {
  auto entry = std::make_shared<FakeEntry>();
  entry->predicates = {predicate};
  entry->num_objects = 1;
  entry->on_finish = [value](PyObject* const* objects, PyObject* const*,
                             PyObject*) { return value(objects[0]); };
  return entry;
}

PyObject* make_token(PyObject* function, std::vector<PyObject*> args) {
  PyObject* token = PyTuple_New(args.size() + 2);
  PyTuple_SET_ITEM(token, 0, Py_NewRef(token_marker()));
  PyTuple_SET_ITEM(token, 1, Py_NewRef(function));
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(token, i + 2, Py_NewRef(args[i]));
  }
  return token;
}

void FrameHookTest::SetUp() {
  reload_options();
  clear_events();
  set_compiler(&compiler_);
}

void FrameHookTest::TearDown() {
  EXPECT_EQ(take_error(), "");
  set_compiler(nullptr);
  set_should_compile(nullptr);
  forget_options(&options_);
  PyGC_Collect();
  reload_options();
  EXPECT_EQ(FakeEntry::alive, 0);
  EXPECT_EQ(hook_installs(), 0);
  EXPECT_EQ(threads_with_attention, 0);
}

Ref FrameHookTest::compiled(PyObject* function) {
  return Ref::steal(make_compiled_function(function, &options_, nullptr));
}

void FrameHookTest::compile_in(Namespace& ns, const std::string& name) {
  Ref function = ns.get(name);
  Ref result = compiled(function.get());
  ASSERT_TRUE(result) << take_error();
  ns.set(name, result.get());
}

void FrameHookTest::never_compile(bool hook_callees) {
  compiler_.on_compile = [hook_callees](const CompileRequest&) {
    CompileOutcome outcome;
    outcome.skip_forever = true;
    outcome.hook_callees = hook_callees;
    return outcome;
  };
}

}  // namespace framejit::testing

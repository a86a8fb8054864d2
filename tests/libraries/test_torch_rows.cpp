// Rows of torch, with modules of its names that have the shape of it. (What the
// rows do for torch itself is tested in tests/python.)
#include "libraries/libraries.h"
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

// show_make(name, text): a module that is imported.
constexpr char kModules[] = R"(
def show_make(name, text):
    module = __import__('types').ModuleType(name)
    exec(text, module.__dict__)
    __import__('sys').modules[name] = module
    return module
)";

class TorchRowsTest : public ::testing::Test {
 protected:
  void SetUp() override { libraries::register_libraries(); }
  static CaptureRun whole(const std::string& body, const char* arguments) {
    return check_whole(kModules + body, arguments);
  }
  static CaptureRun broken(const std::string& body, const char* reason,
                           const char* arguments) {
    CaptureRun run = check(kModules + body, arguments);
    EXPECT_FALSE(run.reasons.empty()) << body;
    if (!run.reasons.empty()) {
      EXPECT_EQ(run.reasons[0], reason) << run.details[0];
    }
    return run;
  }
  static constexpr char kTensor[] = "(fake.tensor([2], [1., 2.]),)";
};

TEST_F(TorchRowsTest, RegisteringImportsNothing) {
  PyObject* modules = PyImport_GetModuleDict();
  for (const char* name :
       {"torch", "torch._C", "torch.nn.modules.module", "numpy"}) {
    if (PyDict_GetItemString(modules, name)) {
      PyDict_DelItemString(modules, name);
    }
  }
  whole("def f(x):\n  return x + 1.0\n", kTensor);
  for (const char* name : {"torch", "torch._C", "numpy"}) {
    EXPECT_FALSE(PyDict_GetItemString(modules, name)) << name;
  }
  EXPECT_FALSE(register_library(libraries::torch_modules())) << "it is there";
}

TEST_F(TorchRowsTest, WrappersAreLookedThrough) {
  // fake.mystery() is a break.
  whole(
      "show_compile = show_make('torch._compile', '''\n"
      "import fake\n"
      "def _disable_dynamo(fn):\n"
      "    def inner(*args):\n"
      "        fake.mystery()\n"
      "        return fn(*args)\n"
      "    inner.__wrapped__ = fn\n"
      "    return inner\n''')\n"
      "g = show_compile._disable_dynamo(lambda x: x * 2.0)\n"
      "def f(x):\n  return g(x)\n",
      kTensor);
  whole(
      "show_guard = show_make('torch._dynamo.mutation_guard', '''\n"
      "import fake\n"
      "def install_generation_tagging_init(init, setstate):\n"
      "    def patched_init(x):\n"
      "        fake.mystery()\n"
      "        return init(x)\n"
      "    def patched_setstate(x):\n"
      "        fake.mystery()\n"
      "        return setstate(x)\n"
      "    return patched_init, patched_setstate\n''')\n"
      "g, h = show_guard.install_generation_tagging_init(\n"
      "    lambda x: x * 2.0, lambda x: x + 1.0)\n"
      "def f(x):\n  return g(x), h(x)\n",
      kTensor);
}

TEST_F(TorchRowsTest, OptimizersAreCodeLikeAnyOther) {
  auto marked = [](const char* module) {
    return std::string("def h(x):\n  return x * 2.0\n") +
           "def g(x):\n  fake.mystery()\n  return x * 2.0\n"
           "g.__wrapped__ = h\ng._torchdynamo_disable = True\n"
           "g.__module__ = '" +
           module + "'\ndef f(x):\n  return g(x)\n";
  };
  whole(marked("torch.optim.adam"), kTensor);
  broken(marked("torch.other"), "FJ205", kTensor);
  broken(marked("torch.optimal"), "FJ205", kTensor);
}

TEST_F(TorchRowsTest, TheDefaultDeviceIsNoMode) {
  constexpr char kDevice[] =
      "show_torch = show_make('torch', '''\n"
      "class device:\n"
      "    def __init__(self, type):\n"
      "        self.type = type\n"
      "    def __eq__(self, other):\n"
      "        return self.type == other.type\n"
      "    __hash__ = None\n"
      "    def __enter__(self):\n"
      "        return self\n"
      "    def __exit__(self, *exception):\n"
      "        pass\n''')\n"
      "cpu, other = show_torch.device('cpu'), show_torch.device('cuda')\n";
  // Constants, as the tracer says of torch's.
  auto with_constants = [&](const std::string& body) {
    Ref globals = make_globals(kModules + (kDevice + body));
    PyObject* module = PyDict_GetItemString(globals.get(), "show_torch");
    Ref type = Ref::steal(PyObject_GetAttrString(module, "device"));
    add_constant_type(reinterpret_cast<PyTypeObject*>(type.get()));
    CaptureRun run;
    Ref x = evaluate_text(globals.get(), "fake.tensor([2], [1., 2.])");
    EXPECT_TRUE(run.call(PyDict_GetItemString(globals.get(), "f"), {x}))
        << take_error();
    return run;
  };
  CaptureRun whole =
      with_constants("def f(x):\n  with cpu:\n    return x + 1.0\n");
  EXPECT_TRUE(whole.reasons.empty());
  CaptureRun broken =
      with_constants("def f(x):\n  with other:\n    return x + 1.0\n");
  ASSERT_FALSE(broken.reasons.empty());
  EXPECT_EQ(broken.reasons[0], "FJ503");
}

// torch._C over the overrides of fake tensors.
constexpr char kOverrides[] = R"(
show_c = show_make('torch._C', '''
import fake
_push_on_torch_function_stack = fake.push_mode
_pop_torch_function_stack = fake.pop_mode
_len_torch_function_stack = fake.num_modes
_has_torch_function_variadic = fake.has_override
class DisableTorchFunction:
    level = 2
    def __enter__(self):
        self.before = fake.set_asking(self.level)
    def __exit__(self, *exception):
        fake.set_asking(self.before)
class DisableTorchFunctionSubclass:
    level = 1
    def __enter__(self):
        self.before = fake.set_asking(self.level)
    def __exit__(self, *exception):
        fake.set_asking(self.before)
''')
class Loud:
    def __init__(self, x):
        self.x = x
    @classmethod
    def __fake_function__(cls, function, types, args, kwargs):
        args = [a.x if isinstance(a, cls) else a for a in args]
        return function(*args, **kwargs) * 10.0
    __torch_function__ = __fake_function__
class Mode:
    def __fake_function__(self, function, types, args, kwargs):
        return function(*args, **kwargs) + 100.0
    __torch_function__ = __fake_function__
mode = Mode()
)";

TEST_F(TorchRowsTest, ModesAreEnteredAndLeft) {
  whole(kOverrides + std::string(R"(
def f(x):
    before = show_c._len_torch_function_stack()
    show_c._push_on_torch_function_stack(mode)
    inside = show_c._len_torch_function_stack()
    asked = show_c._has_torch_function_variadic(x)
    y = fake.add(x, 1.0)
    is_mode = show_c._pop_torch_function_stack() is mode
    return before, inside, asked, y, is_mode, fake.add(x, 1.0)
)"),
        kTensor);
}

TEST_F(TorchRowsTest, AskingIsSwitchedOff) {
  const char* kBody = R"(
def f(x):
    show_c._push_on_torch_function_stack(mode)
    with show_c.SWITCH():
        y = fake.add(x, 1.0)
        asked = show_c._has_torch_function_variadic(Loud(x))
    z = fake.add(x, 1.0)
    show_c._pop_torch_function_stack()
    return y, asked, z
)";
  for (const char* name :
       {"DisableTorchFunction", "DisableTorchFunctionSubclass"}) {
    std::string body = kBody;
    body.replace(body.find("SWITCH"), 6, name);
    whole(kOverrides + body, kTensor);
  }
  whole(kOverrides + std::string(R"(
def f(x):
    return fake.add(x, Loud(1.0)), show_c._has_torch_function_variadic(Loud(x))
)"),
        kTensor);
}

}  // namespace
}  // namespace framejit::bytecode::testing

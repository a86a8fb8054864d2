// The fast paths for torch.nn.Module against inlining of the same Python code.
#include "libraries/libraries.h"
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

// The library's functions in miniature, in a module of its name. EXTRA in their
// code makes them unknown, and so inlined.
std::string module_source(bool known) {
  std::string source = R"(
show_text = """
import fake
class torch:
    class _C:
        _get_tracing_state = staticmethod(lambda: None)
_global_backward_pre_hooks = {}
_global_backward_hooks = {}
_global_forward_hooks = {}
_global_forward_pre_hooks = {}
_global_forward_hooks_always_called = {}
class Module:
    def __init__(self):
        for n in ('_parameters', '_buffers', '_modules', '_backward_hooks',
                  '_backward_pre_hooks', '_forward_hooks',
                  '_forward_pre_hooks'):
            self.__dict__[n] = {}
        self._compiled_call_impl = None
    def __getattr__(self, name):
        EXTRA
        if '_parameters' in self.__dict__:
            _parameters = self.__dict__['_parameters']
            if name in _parameters:
                return _parameters[name]
        if '_buffers' in self.__dict__:
            _buffers = self.__dict__['_buffers']
            if name in _buffers:
                return _buffers[name]
        if '_modules' in self.__dict__:
            modules = self.__dict__['_modules']
            if name in modules:
                return modules[name]
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'")
    def _wrapped_call_impl(self, *args, **kwargs):
        EXTRA
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        else:
            return self._call_impl(*args, **kwargs)
    def _call_impl(self, *args, **kwargs):
        EXTRA
        forward_call = (self._slow_forward if torch._C._get_tracing_state()
                        else self.forward)
        if not (self._backward_hooks or self._backward_pre_hooks
                or self._forward_hooks or self._forward_pre_hooks
                or _global_backward_pre_hooks or _global_backward_hooks
                or _global_forward_hooks or _global_forward_pre_hooks):
            return forward_call(*args, **kwargs)
        called = set()
        for hook in self._forward_pre_hooks.values():
            args = hook(self, args) or args
        result = forward_call(*args, **kwargs)
        for hook in self._forward_hooks.values():
            r = hook(self, args, result)
            if r is not None:
                result = r
        return result
        if torch.compiler.is_compiling(): pass
        try: pass
        except Exception:
            for a in _global_forward_hooks.items():
                _global_forward_hooks_always_called
                warnings.warn(str(a))
                self._forward_hooks_always_called
                self._forward_hooks_with_kwargs
    __call__ = _wrapped_call_impl
"""
show_module = __import__('types').ModuleType('torch.nn.modules.module')
exec(show_text, show_module.__dict__)
__import__('sys').modules[show_module.__name__] = show_module
Module = show_module.Module
class Linear(Module):
    def __init__(self, n):
        super().__init__()
        self._parameters['weight'] = fake.tensor([2], [n, n + 1.0])
        self._buffers['scale'] = fake.tensor([1], [2.0])
        self.log = []
    def forward(self, x, bias=None):
        x = x * self.weight + self.scale
        return x if bias is None else x + bias
class Net(Module):
    def __init__(self):
        super().__init__()
        self._modules['a'] = Linear(1.0)
        self._modules['b'] = Linear(3.0)
    def forward(self, x):
        x = self.a(x)
        x = self.b(x, bias=1.0)
        try:
            self.missing
        except AttributeError as e:
            return x, str(e)
)";
  // The unused name goes last in co_names, so that only the count differs.
  for (size_t at; (at = source.find("EXTRA")) != std::string::npos;) {
    source.replace(at, 5, known ? "pass" : "None if True else unused_name");
  }
  return source;
}

CaptureRun check_module(const std::string& body, bool known) {
  register_library(libraries::torch_modules());
  return check_whole(module_source(known) + body,
                     "(net, fake.tensor([2], [1., 2.]))");
}

TEST(ModuleTest, FastPathsDoWhatThePythonCodeDoes) {
  const char* body =
      "net = Net()\ndef f(net, x):\n  y, text = net(x)\n  return y, text\n";
  CaptureRun fast = check_module(body, true);
  CaptureRun slow = check_module(body, false);
  EXPECT_EQ(fast.graphs, slow.graphs);
  EXPECT_LT(fast.instructions * 3, slow.instructions * 2)
      << "the fast paths were not taken";
  EXPECT_LE(fast.guards, slow.guards);
}

TEST(ModuleTest, HooksGoThroughThePythonCode) {
  check_module(
      "net = Net()\nnet.a._forward_hooks[0] = lambda m, a, r: r * 10.0\n"
      "net.b._forward_pre_hooks[0] = lambda m, a: (a[0] - 1.0,)\n"
      "def f(net, x):\n  return net(x)\n",
      true);
}

// A guard for each thing that the fast path read.
TEST(ModuleTest, ChangesOfTheModuleFailAGuard) {
  const char* changes[] = {
      "net.a._forward_hooks[1] = print",
      "net.b._backward_hooks[1] = print",
      "show_module._global_forward_hooks[1] = print",
      "net.a.weight = 3",
      "net.b._parameters['scale'] = 5",
      "net.a.forward = print",
      "net._compiled_call_impl = print",
      "net.a._parameters['missing'] = 1; net._modules['missing'] = 1",
      "Linear.forward = print",
      "Net.a = 1",
      "net._modules['a'] = Linear(1.0); net._modules['a'].log = 1;"
      "net._modules['a']._parameters['weight'] = fake.tensor([3])",
  };
  register_library(libraries::torch_modules());
  for (const char* change : changes) {
    Ref globals = make_globals(
        module_source(true) + "net = Net()\ndef f(net, x):\n  return net(x)\n");
    Ref args =
        evaluate_text(globals.get(), "(net, fake.tensor([2], [1., 2.]))");
    std::vector<PyObject*> slots = {PyTuple_GET_ITEM(args.get(), 0),
                                    PyTuple_GET_ITEM(args.get(), 1)};
    PyObject* function = PyDict_GetItemString(globals.get(), "f");
    CaptureRequest request{function, slots.data(), slots.size()};
    fake::FakeTracer tracer;
    auto outcome = capture(request, tracer);
    ASSERT_TRUE(outcome.ok());
    const GuardSet& guards = *outcome.value().guards;
    std::vector<PyObject*> objects(guards.gathered().size() + 1);
    std::vector<int64_t> symbols(guards.symbols().size() + 1);
    EXPECT_TRUE(evaluate(guards, slots.data(), function, objects.data(),
                         symbols.data()));
    Ref done = Ref::steal(
        PyRun_String(change, Py_file_input, globals.get(), globals.get()));
    ASSERT_TRUE(done) << take_error();
    EXPECT_FALSE(evaluate(guards, slots.data(), function, objects.data(),
                          symbols.data()))
        << change;
  }
}

}  // namespace
}  // namespace framejit::bytecode::testing

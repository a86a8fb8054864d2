// Every public function of torch is recorded, interpreted, or has a row that
// says what becomes of it; and every row names something that exists.
#include "graph/tracing/callees.h"

#include <gtest/gtest.h>

#include "graph/ir/graph_text.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph {
namespace {

using testing::eval;
using testing::exec;

const char* const kPublicFunctions = R"(
import inspect, types
def public_functions():
    found = []
    spaces = [torch, torch.nn.functional, torch.linalg, torch.fft, torch.special,
              torch.Tensor, torch.random, torch.autograd, torch.nn.init]
    for space in spaces:
        for name in dir(space):
            if name.startswith('_'):
                continue
            value = inspect.getattr_static(space, name)
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, (types.FunctionType, types.BuiltinFunctionType,
                                  types.MethodDescriptorType,
                                  types.WrapperDescriptorType)):
                found.append((space.__name__ + '.' + name, value))
    return found
)";

TEST(Callees, PublicFunctionsAreKnown) {
  testing::start_torch();
  exec(kPublicFunctions);
  Ref list = eval("public_functions()");
  ASSERT_TRUE(list);
  ASSERT_GT(PyList_GET_SIZE(list.get()), 1000);
  std::string missing;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* pair = PyList_GET_ITEM(list.get(), i);
    CalleeRow row = find_callee(PyTuple_GET_ITEM(pair, 1));
    std::string name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(pair, 0));
    if (row.kind == CalleeClass::kUnknown && !row.from_table)
      missing += name + " ";
    // Functions of the standard library that torch modules import are not ours.
    bool torch_own =
        canonical_name(PyTuple_GET_ITEM(pair, 1)).starts_with("torch");
    if (row.kind == CalleeClass::kNotForeign && torch_own)
      missing += name + "(not foreign) ";
  }
  EXPECT_EQ(missing, "");
}

TEST(Callees, RowsAreNotDead) {
  testing::start_torch();
  // Loaded lazily by torch itself.
  exec(
      "import torch.utils.checkpoint, torch._dynamo.external_utils, "
      "torch.onnx, torch.fx, torch.func, torch.compiler, torch.utils.dlpack, "
      "torch._higher_order_ops, torch.package, torch._export, torch._lazy, "
      "torch.masked, torch.nested, torch.testing, torch._inductor, "
      "torch.export._unlift, torch._export.non_strict_utils");
  std::string dead;
  for (const std::string& name : callee_table_names()) {
    if (name.find('<') != std::string::npos) continue;
    Ref object = resolve_import_path(name);
    // A builtin's home may be the class of torch's functions.
    if (!object) dead += name + " ";
  }
  EXPECT_EQ(dead, "");
}

TEST(Callees, TypesWrittenInCAreNotInterpreted) {
  testing::start_torch();
  for (const char* type : {"torch.FloatTensor", "torch.Generator",
                           "torch.Stream", "torch.UntypedStorage"}) {
    CalleeClass kind = find_callee(eval(type).get()).kind;
    EXPECT_EQ(kind, CalleeClass::kUnknown) << type;
  }
  EXPECT_EQ(find_callee(eval("torch.nn.Linear").get()).kind,
            CalleeClass::kNotForeign);
  EXPECT_EQ(find_callee(eval("torch.no_grad").get()).kind,
            CalleeClass::kNotForeign);
  EXPECT_EQ(find_callee(eval("torch.Size").get()).kind, CalleeClass::kPure);
}

}  // namespace
}  // namespace framejit::graph

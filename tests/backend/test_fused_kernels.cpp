// Fused programs against ATen: every lowering row, random chains, broadcasts,
// convexity of groups, and buffers of repeated runs.
#include <random>
#include <set>

#include "backend/emit_avx512.h"
#include "backend/lowerings.h"
#include "backend/program.h"
#include "backend/schedule.h"
#include "frame_hook/options.h"
#include "graph/ops/op_table.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::Arg;
using graph::Graph;
using graph::Value;

// Which implementation runs the kernels.
class ScopedIsa {
 public:
  explicit ScopedIsa(const char* isa) { set(isa); }
  ~ScopedIsa() { set("auto"); }

 private:
  void set(const char* isa) {
    std::string error;
    EXPECT_TRUE(set_option("isa", isa, &error)) << error;
  }
};

std::vector<at::Tensor> run_graph(const Graph& graph,
                                  const std::vector<at::Tensor>& inputs,
                                  bool fuse, std::vector<int64_t> symbols,
                                  size_t* num_kernels = nullptr) {
  ProgramOptions options;
  options.fuse = fuse;
  // The reference runs in double, and on layouts the graph does not declare.
  options.check_results = false;
  auto program = Program::build(graph, options);
  EXPECT_TRUE(program.ok());
  std::vector<const at::Tensor*> raw;
  for (const at::Tensor& input : inputs) raw.push_back(&input);
  raw.resize(graph.inputs.size(), nullptr);
  std::vector<at::Tensor> outputs(graph.outputs.size());
  program.value()->run(raw.data(), symbols.data(), outputs.data(), nullptr);
  if (num_kernels) *num_kernels = program.value()->kernel_texts().size();
  return outputs;
}

void expect_close(const at::Tensor& got, const at::Tensor& want,
                  const std::string& what, double tolerance = 2e-6) {
  Ref a = wrap(got), b = wrap(want);
  set_global("_a", a.get());
  set_global("_b", b.get());
  std::string t = std::to_string(tolerance * 1e6) + "e-6";
  EXPECT_EQ(eval("_a.dtype == _b.dtype and _a.shape == _b.shape and "
                 "(torch.equal(_a, _b) if _a.dtype == torch.bool else "
                 "torch.allclose(_a, _b, rtol=" +
                 t + ", atol=" + t + ", equal_nan=True))")
                .get(),
            Py_True)
      << what << "\n"
      << PyUnicode_AsUTF8(
             eval("str([(i, a, b) for i, (a, b) in enumerate(zip("
                  "_a.flatten().tolist(), _b.flatten().tolist())) if "
                  "not (a == b or abs(a - b) < 1e-6 * abs(b))][:8])")
                 .get());
}

// The graph fused (emitted and interpreted) and through ATen.
void compare(const Graph& graph, const std::vector<at::Tensor>& inputs,
             const std::string& what, size_t kernels,
             std::vector<int64_t> symbols = {}, double tolerance = 2e-6,
             bool in_double = false) {
  std::vector<at::Tensor> reference = inputs;
  for (at::Tensor& input : reference) {
    if (in_double && input.is_floating_point()) input = input.to(at::kDouble);
  }
  auto want = run_graph(graph, reference, false, symbols);
  for (at::Tensor& output : want) {
    if (in_double) output = output.to(at::kFloat);
  }
  for (const char* isa : {"reference", "auto"}) {
    ScopedIsa scope(isa);
    size_t count = 0;
    auto got = run_graph(graph, inputs, true, symbols, &count);
    EXPECT_EQ(count, kernels) << what;
    for (size_t i = 0; i < want.size(); ++i) {
      expect_close(got[i], want[i], what + " " + isa, tolerance);
    }
  }
}

const char kSpecials[] =
    "[0., -0., 1., -1., 0.5, -0.5, float('inf'), -float('inf'), float('nan'),"
    " 1e-40, -1e-40, 3e38, -3e38, 20., -20., 100., -100., 2e5, 1e-6, 3., 7.]";

at::Tensor random_floats(int64_t size) {
  set_global("_n", Ref::steal(PyLong_FromLongLong(size)).get());
  return tensor(
      eval("(lambda s, r: torch.where(torch.rand(_n) < 0.4, "
           "s[torch.randint(0, len(s), (_n,))], r))(torch.tensor(" +
           std::string(kSpecials) + "), torch.randn(_n) * 3)"));
}

at::Tensor random_bools(int64_t size) {
  set_global("_n", Ref::steal(PyLong_FromLongLong(size)).get());
  return tensor(eval("torch.rand(_n) < 0.5"));
}

// The arguments of one call of a row: tensors for f and m, or numbers.
struct RowCall {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<at::Tensor> inputs;
};

RowCall make_call(const LoweringRow& row, int64_t size, double number,
                  bool symbolic) {
  RowCall call;
  Graph& g = *call.graph;
  std::string pattern = row.pattern;
  Expr n = symbolic ? Expr::symbol(0) : Expr(size);
  std::vector<Arg> args;
  for (char kind : pattern) {
    switch (kind) {
      case 'f':
        args.push_back(g.add_input("x", meta({n})));
        call.inputs.push_back(random_floats(size));
        // Its cube overflows in float and not in the reference.
        if (row.name == std::string("gelu_backward")) {
          call.inputs.back() =
              call.inputs.back().nan_to_num(1, 2, 3).clamp(-20, 20);
        }
        break;
      case 'm':
        args.push_back(
            g.add_input("m", meta({n}, false, c10::ScalarType::Bool)));
        call.inputs.push_back(random_bools(size));
        break;
      case 't':
        args.push_back(Arg(std::string(number < 1 ? "none" : "tanh")));
        break;
      case 'n':
        args.push_back(number == 2 ? Arg() : Arg(number));
        break;
      default:
        args.push_back(Arg(number));
    }
  }
  if (symbolic) g.add_symbol_input("s0", n);
  if (row.name == std::string("clamp") && number == 2) args[1] = Arg(-0.25);
  // The dtype is ATen's.
  graph::Node* node = aten_node(g, row.name, row.overload, args);
  Value* out = g.add_output(node);
  out->meta = meta({n});
  g.set_outputs({out});
  out->meta.dtype = run_graph(g, call.inputs, false, {size})[0].scalar_type();
  return call;
}

TEST(Lowerings, EveryRowEqualsAten) {
  exec("torch.manual_seed(0)");
  for (const LoweringRow& row : lowering_rows()) {
    bool has_number =
        std::string(row.pattern).find_first_of("snt") != std::string::npos;
    for (double number : {0.5, 2.0, 1.0, -1.0}) {
      for (int64_t size : {0, 1, 15, 16, 17, 1000}) {
        std::string what = std::string(row.name) + "." + row.overload + " " +
                           std::to_string(number) +
                           " n=" + std::to_string(size);
        bool lowered = true;
        // ATen computes sqrt for this exponent, and pow for these.
        if (row.name == std::string("pow")) {
          lowered = number == 2.0 || number == -1.0;
        }
        RowCall call = make_call(row, size, number, size % 2 == 1);
        // ATen's own float gelu is coarse, and NaN for some large arguments.
        bool in_double = std::string(row.name).rfind("gelu", 0) == 0;
        // gelu's slope cancels where it is small: the error is that of the
        // gradient (up to 20) it is multiplied with.
        double tolerance =
            row.name == std::string("gelu_backward") ? 1e-4 : 5e-6;
        compare(*call.graph, call.inputs, what, lowered, {size}, tolerance,
                in_double);
      }
      if (!has_number) break;
    }
  }
}

TEST(Lowerings, TheOpTableNamesThem) {
  std::set<std::string> rows, named;
  for (const LoweringRow& row : lowering_rows()) {
    std::string overload = row.overload;
    rows.insert(overload.empty() ? row.name
                                 : std::string(row.name) + "." + overload);
  }
  for (const graph::OpRow& row : graph::op_table()) {
    if (row.lowering == graph::Lowering::kFused) named.insert(row.name);
  }
  EXPECT_EQ(rows, named);
}

TEST(Lowerings, RefusesOtherTypes) {
  auto lowered = [](auto build) {
    Graph g;
    Value* out = build(g);
    return find_lowering(*out->node) != nullptr;
  };
  auto d = c10::ScalarType::Double;
  EXPECT_FALSE(lowered([&](Graph& g) {
    return aten(g, "sin", "", {g.add_input("x", meta({3}, false, d))},
                meta({3}, false, d));
  }));
  EXPECT_FALSE(lowered([&](Graph& g) {
    auto* x = g.add_input("x", meta({3}));
    return aten(g, "mul", "Tensor", {x, g.add_input("y", meta({}, false, d))},
                meta({3}));
  }));
  EXPECT_FALSE(lowered([&](Graph& g) {
    auto* x = g.add_input("x", meta({3}, false, c10::ScalarType::Long));
    return aten(g, "sin", "", {x}, meta({3}));
  }));
  // A complex number, a symbolic number.
  EXPECT_FALSE(lowered([&](Graph& g) {
    auto* x = g.add_input("x", meta({3}));
    return aten(g, "mul", "Tensor", {x, Arg(c10::complex<double>(1, 2))},
                meta({3}, false, c10::ScalarType::ComplexFloat));
  }));
  EXPECT_FALSE(lowered([&](Graph& g) {
    auto* x = g.add_input("x", meta({3}));
    return aten(g, "mul", "Tensor", {x, Arg(Expr::symbol(0))}, meta({3}));
  }));
  EXPECT_FALSE(lowered([&](Graph& g) {
    auto* x = g.add_input("x", meta({3}));
    return aten(g, "div", "Tensor_mode", {x, x, Arg(std::string("floor"))},
                meta({3}));
  }));
}

TEST(FusedKernels, BoolsArePromoted) {
  Graph g;
  auto* x = g.add_input("x", meta({40}));
  auto* m = aten(g, "gt", "Scalar", {x, Arg(0.0)},
                 meta({40}, false, c10::ScalarType::Bool));
  auto* y = aten(g, "mul", "Tensor", {x, m}, meta({40}));
  g.set_outputs({y, m});
  compare(g, {random_floats(40)}, "promotion", 1);
}

TEST(FusedKernels, Broadcasts) {
  // Every operand shape that may meet [s0, 3, s1].
  Expr a = Expr::symbol(0), b = Expr::symbol(1);
  struct Shape {
    std::vector<Expr> sizes;
    std::vector<int64_t> real;
    bool fused;
  };
  const int64_t p = 5, q = 19;
  const Shape shapes[] = {{{a, 3, b}, {p, 3, q}, true},
                          {{b}, {q}, true},
                          {{3, b}, {3, q}, true},
                          {{1, 3, b}, {1, 3, q}, true},
                          {{a, 3, 1}, {p, 3, 1}, true},
                          {{a, 1, 1}, {p, 1, 1}, true},
                          {{}, {}, true},
                          {{1, 1, 1}, {1, 1, 1}, true},
                          {{1}, {1}, true},
                          {{3, 1}, {3, 1}, false},
                          {{a, 1, b}, {p, 1, q}, false}};
  for (const Shape& shape : shapes) {
    Graph g;
    auto* x = g.add_input("x", meta({a, 3, b}));
    auto* y = g.add_input("y", meta(shape.sizes));
    g.add_symbol_input("s0", a);
    g.add_symbol_input("s1", b);
    auto* sum = aten(g, "add", "Tensor", {y, x}, meta({a, 3, b}));
    g.set_outputs({aten(g, "mul", "Tensor", {sum, y}, meta({a, 3, b}))});
    at::Tensor left = random_floats(p * 3 * q).view({p, 3, q});
    int64_t numel = 1;
    for (int64_t size : shape.real) numel *= size;
    at::Tensor right = random_floats(numel).view(shape.real);
    compare(g, {left, right}, "broadcast", shape.fused ? 1 : 0, {p, q});
  }
}

TEST(FusedKernels, RowsAndColumnsWithTheSameSplit) {
  Graph g;
  auto* x = g.add_input("x", meta({4, 33}));
  auto* row = g.add_input("mean", meta({4, 1}));
  auto* column = g.add_input("weight", meta({33}));
  auto* c = aten(g, "sub", "Tensor", {x, row}, meta({4, 33}));
  auto* y = aten(g, "mul", "Tensor", {c, column}, meta({4, 33}));
  g.set_outputs({y});
  compare(g,
          {random_floats(132).view({4, 33}), random_floats(4).view({4, 1}),
           random_floats(33)},
          "rows and columns", 1);
}

TEST(FusedKernels, OperandsWithOtherStrides) {
  Graph g;
  auto* x = g.add_input("x", meta({6, 20}));
  g.set_outputs({aten(g, "sin", "", {x}, meta({6, 20}))});
  compare(g, {random_floats(120).view({20, 6}).t()}, "strided at run time", 1);
  // Strides known to differ are left to ATen, which keeps the layout.
  Graph h;
  graph::TensorMeta transposed = meta({6, 20});
  transposed.strides = {1, 6};
  auto* t = h.add_input("x", transposed);
  h.set_outputs({aten(h, "sin", "", {t}, transposed)});
  compare(h, {random_floats(120).view({20, 6}).t()}, "strided", 0);
}

TEST(FusedKernels, WrongSizesAreRefused) {
  Graph g;
  auto* x = g.add_input("x", meta({8}));
  auto* y = g.add_input("y", meta({8}));
  g.set_outputs({aten(g, "add", "Tensor", {x, y}, meta({8}))});
  EXPECT_THROW(run_graph(g, {random_floats(8), random_floats(7)}, true, {}),
               InternalError);
  EXPECT_THROW(
      run_graph(g, {random_floats(8), random_floats(8).to(at::kDouble)}, true,
                {}),
      InternalError);
}

TEST(FusedKernels, LargeArgumentsOfSine) {
  Graph g;
  auto* x = g.add_input("x", meta({100}));
  g.set_outputs({aten(g, "cos", "", {x}, meta({100}))});
  compare(g, {tensor(eval("torch.linspace(-1e6, 1e6, 100)"))}, "retry", 1);
  compare(g, {tensor(eval("torch.logspace(0, 38, 100)"))}, "retry", 1);
}

TEST(FusedKernels, GroupsAreConvex) {
  // a -> mm -> b, and a -> b directly: a and b must stay apart.
  Graph g;
  auto* x = g.add_input("x", meta({4, 4}));
  auto* a = aten(g, "sin", "", {x}, meta({4, 4}));
  auto* m = aten(g, "mm", "", {a, a}, meta({4, 4}));
  auto* b = aten(g, "add", "Tensor", {m, a}, meta({4, 4}));
  auto* c = aten(g, "mul", "Tensor", {b, x}, meta({4, 4}));
  g.set_outputs({c});
  compare(g, {tensor(eval("torch.randn(4, 4)"))}, "convex", 2);
  // Two groups that would need each other once merged.
  Graph h;
  auto* p = h.add_input("x", meta({4, 4}));
  auto* a1 = aten(h, "sin", "", {p}, meta({4, 4}));
  auto* b1 = aten(h, "cos", "", {p}, meta({4, 4}));
  auto* ma = aten(h, "mm", "", {a1, p}, meta({4, 4}));
  auto* mb = aten(h, "mm", "", {b1, p}, meta({4, 4}));
  auto* a2 = aten(h, "add", "Tensor", {a1, mb}, meta({4, 4}));
  auto* b2 = aten(h, "add", "Tensor", {b1, ma}, meta({4, 4}));
  h.set_outputs({aten(h, "mul", "Tensor", {a2, b2}, meta({4, 4}))});
  auto in = tensor(eval("torch.randn(4, 4)"));
  auto want = run_graph(h, {in}, false, {});
  auto got = run_graph(h, {in}, true, {});
  expect_close(got[0], want[0], "two groups");
}

// Random dags of pointwise and matrix operators.
TEST(FusedKernels, RandomGraphs) {
  std::mt19937 random(11);
  auto below = [&](size_t n) { return random() % n; };
  exec("torch.manual_seed(1)");
  for (int round = 0; round < 60; ++round) {
    Graph g;
    Expr n = Expr::symbol(0);
    const int64_t size = 1 + static_cast<int64_t>(below(40));
    std::vector<Value*> square = {g.add_input("x", meta({n, n})),
                                  g.add_input("y", meta({n, n}))};
    std::vector<Value*> rows = {g.add_input("r", meta({n, 1}))};
    std::vector<Value*> columns = {g.add_input("c", meta({n}))};
    g.add_symbol_input("s0", n);
    auto pick = [&](std::vector<Value*>& from) {
      return from[below(from.size())];
    };
    for (size_t i = 0; i < 3 + below(25); ++i) {
      Value* x = pick(square);
      switch (below(8)) {
        case 0:
          square.push_back(aten(g, "tanh", "", {x}, meta({n, n})));
          break;
        case 1:
          square.push_back(aten(g, "mm", "", {x, pick(square)}, meta({n, n})));
          square.back() = aten(g, "sigmoid", "", {square.back()}, meta({n, n}));
          break;
        case 2:
          square.push_back(
              aten(g, "add", "Tensor", {x, pick(rows)}, meta({n, n})));
          break;
        case 3:
          square.push_back(
              aten(g, "mul", "Tensor", {x, pick(columns)}, meta({n, n})));
          break;
        case 4:
          columns.push_back(aten(g, "sin", "", {pick(columns)}, meta({n})));
          break;
        case 5:
          rows.push_back(aten(g, "mean", "dim",
                              {x, Arg(Arg::List{{Arg(int64_t{1})}}), Arg(true)},
                              meta({n, 1})));
          break;
        case 6: {
          auto* m = aten(g, "lt", "Tensor", {x, pick(square)},
                         meta({n, n}, false, c10::ScalarType::Bool));
          square.push_back(
              aten(g, "where", "self", {m, x, pick(square)}, meta({n, n})));
          break;
        }
        default:
          square.push_back(
              aten(g, "sub", "Tensor", {x, pick(square)}, meta({n, n})));
          square.back() = aten(g, "tanh", "", {square.back()}, meta({n, n}));
      }
    }
    g.set_outputs({square.back(), pick(square), columns.back(), rows.back()});
    set_global("_n", Ref::steal(PyLong_FromLongLong(size)).get());
    std::vector<at::Tensor> inputs = {tensor(eval("torch.randn(_n, _n)")),
                                      tensor(eval("torch.randn(_n, _n)")),
                                      tensor(eval("torch.randn(_n, 1)")),
                                      tensor(eval("torch.randn(_n)"))};
    auto want = run_graph(g, inputs, false, {size});
    // Twice: buffers of the first run must not be seen by the second.
    ProgramOptions options;
    options.fuse = true;
    auto program = Program::build(g, options);
    ASSERT_TRUE(program.ok());
    std::vector<const at::Tensor*> raw;
    for (auto& input : inputs) raw.push_back(&input);
    raw.push_back(nullptr);
    std::vector<at::Tensor> first(4), second(4);
    program.value()->run(raw.data(), &size, first.data(), nullptr);
    program.value()->run(raw.data(), &size, second.data(), nullptr);
    for (size_t i = 0; i < want.size(); ++i) {
      expect_close(first[i], want[i], "random " + std::to_string(round), 2e-4);
      expect_close(second[i], want[i], "again " + std::to_string(round), 2e-4);
    }
  }
}

TEST(FusedKernels, ManyThreads) {
  Graph g;
  auto* x = g.add_input("x", meta({70, 1001}));
  auto* c = g.add_input("c", meta({1001}));
  auto* y = aten(g, "mul", "Tensor", {x, c}, meta({70, 1001}));
  g.set_outputs({aten(g, "sin", "", {y}, meta({70, 1001}))});
  compare(g,
          {tensor(eval("torch.randn(70, 1001)")),
           tensor(eval("torch.randn(1001)"))},
          "rows in parallel", 1);
  Graph h;
  auto* z = h.add_input("x", meta({100003}));
  h.set_outputs({aten(h, "sin", "", {z}, meta({100003}))});
  compare(h, {tensor(eval("torch.randn(100003)"))}, "columns in parallel", 1);
}

// Random operators keep their order whatever is fused around them.
TEST(FusedKernels, RandomOperatorsKeepTheirOrder) {
  Graph g;
  auto* x = g.add_input("x", meta({8}));
  auto* a = aten(g, "sin", "", {x}, meta({8}));
  auto* r1 = aten(g, "rand_like", "", {a}, meta({8}));
  auto* r2 = aten(g, "rand_like", "", {x}, meta({8}));
  auto* b = aten(g, "add", "Tensor", {a, r2}, meta({8}));
  auto* c = aten(g, "mul", "Tensor", {b, r1}, meta({8}));
  g.set_outputs({c, r1, r2});
  at::Tensor in = random_floats(8);
  exec("torch.manual_seed(5)");
  auto want = run_graph(g, {in}, false, {});
  exec("torch.manual_seed(5)");
  auto got = run_graph(g, {in}, true, {});
  for (size_t i = 0; i < 3; ++i) expect_close(got[i], want[i], "random order");
}

}  // namespace
}  // namespace framejit::backend::testing

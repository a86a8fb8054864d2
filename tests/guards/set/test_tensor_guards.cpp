// Tensor guards: fields, symbolic sizes, expressions, storage sharing, state.
#include "guards/set/object_layout.h"
#include "guards/set/shape_history.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

using fake::FakeTracer;

class TensorGuards : public testing::Test {
 protected:
  void SetUp() override {
    fake::install();
    fake::g_grad_enabled = true;
  }
  void TearDown() override { fake::g_grad_enabled = true; }

  // Guards that the fake tracer makes for a call with tensor arguments.
  // dims: whose sizes and strides are symbols.
  std::unique_ptr<ArmedGuards> guards_for(PythonSource& python, uint64_t dims) {
    auto set = std::make_unique<GuardSet>();
    Call call(python);
    FakeTracer tracer;
    EXPECT_TRUE(tracer.begin(set.get()).ok());
    for (size_t i = 0; i < call.args.size(); ++i) {
      const Source* source = set->sources().arg(static_cast<int>(i));
      EXPECT_TRUE(tracer.stand_in(call.args[i], source, {dims, dims}).ok());
      set->add(GuardKind::kNoTensorAttrs, source);
    }
    EXPECT_TRUE(tracer.finish({}).ok());
    auto armed = std::make_unique<ArmedGuards>(std::move(set));
    EXPECT_TRUE(armed->arm(call.args.data(), call.function.get()));
    EXPECT_TRUE(
        native_outcome(armed->guards(), armed->predicate_functions()[0], call)
            .holds);
    return armed;
  }

  void expect(const char* setup, uint64_t dims,
              std::vector<std::pair<const char*, bool>> changes) {
    for (auto [change, holds] : changes) {
      SCOPED_TRACE(std::string(setup) + " / " + change);
      PythonSource python;
      python.run("import fake\ndef function(*a): pass\n");
      python.run(setup);
      auto armed = guards_for(python, dims);
      python.run(change);
      Call call(python);
      EXPECT_EQ(check_call(*armed, call), holds);
      EXPECT_EQ(check_call(*armed, call), holds);
    }
  }
};

// What entries of one function differ in is looked at before a model is walked.
TEST_F(TensorGuards, LargeArgumentsComeLast) {
  for (const char* change : {"args[1] = fake.tensor([3])", "args[1] = None",
                             "fake.set_grad_enabled(False)"}) {
    SCOPED_TRACE(change);
    fake::g_grad_enabled = true;
    PythonSource python;
    python.run(
        "import fake\ndef function(*a): pass\n"
        "args = [{i: fake.tensor([2]) for i in range(40)}, fake.tensor([2])]");
    auto set = std::make_unique<GuardSet>();
    Call call(python);
    FakeTracer tracer;
    ASSERT_TRUE(tracer.begin(set.get()).ok());
    const Source* model = set->sources().arg(0);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(call.args[0], &position, &key, &value)) {
      const Source* item =
          set->sources().make(SourceKind::kDictItem, model, key);
      ASSERT_TRUE(tracer.stand_in(value, item, {}).ok());
    }
    ASSERT_TRUE(tracer.stand_in(call.args[1], set->sources().arg(1), {}).ok());
    ASSERT_TRUE(tracer.finish({}).ok());
    ArmedGuards armed(std::move(set));
    ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
    PredicateFn predicate = armed.predicate_functions()[0];
    EXPECT_TRUE(native_outcome(armed.guards(), predicate, call).holds);
    python.run(change);
    Call other(python);
    Outcome outcome = native_outcome(armed.guards(), predicate, other);
    EXPECT_FALSE(outcome.holds);
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(outcome.objects[i], nullptr);
  }
}

TEST_F(TensorGuards, StaticFields) {
  expect("args = [fake.tensor([2, 3])]", 0,
         {{"pass", true},
          {"args = [fake.tensor([2, 3])]", true},
          {"args[0].add_(1.0)", true},
          {"args = [fake.tensor([3, 2])]", false},
          {"args = [fake.tensor([2, 4])]", false},
          {"args = [fake.tensor([6])]", false},
          {"args = [fake.tensor([2, 3], requires_grad=True)]", false},
          {"args[0].requires_grad_()", false},
          {"args[0].requires_grad_(); args[0].requires_grad_(False)", true},
          {"args[0].t_()", false},
          {"args = [fake.tensor([3, 2]).t()]", false},  // other strides
          {"args[0].resize_([2, 2])", false},
          {"args[0].dtype = 7", false},
          {"args = [fake.Parameter([2, 3])]", false},
          {"args = [fake.SubclassedTensor([2, 3])]", false},
          {"args[0].__class__ = fake.Parameter", false},
          {"args[0].mark = 1", false},
          {"args[0].mark = 1; del args[0].mark", true},
          {"args[0].__dict__", true},
          {"args = [1]", false},
          {"args = [None]", false},
          {"fake.set_grad_enabled(False)", false}});
  expect("args = [fake.Parameter([4], requires_grad=True)]", 0,
         {{"pass", true},
          {"args[0].requires_grad = False", false},
          {"args = [fake.tensor([4], requires_grad=True)]", false}});
  expect("args = [fake.tensor([1, 2, 3, 2, 1, 2, 2])]", 0,
         {{"pass", true},
          {"args = [fake.tensor([1, 2, 3, 2, 1, 2, 3])]", false},
          {"args = [fake.tensor([1, 2, 3, 2, 1, 2])]", false},
          {"args[0].t_()", false}});
  expect("args = [fake.tensor([])]", 0,
         {{"args = [fake.tensor([])]", true},
          {"args = [fake.tensor([1])]", false}});
}

TEST_F(TensorGuards, DynamicDims) {
  expect("args = [fake.tensor([4, 3])]", 1,
         {{"args = [fake.tensor([9, 3])]", true},
          {"args = [fake.tensor([2, 3])]", true},
          {"args = [fake.tensor([1, 3])]", false},
          {"args = [fake.tensor([0, 3])]", false},
          {"args = [fake.tensor([4, 5])]", false}});
  expect("args = [fake.tensor([4, 3])]", 3,  // strides (s1, 1)
         {{"args = [fake.tensor([9, 7])]", true},
          {"args = [fake.tensor([7, 9]).t()]", false}});
  expect("args = [fake.tensor([2, 3, 2, 3, 2, 3, 2])]", 127,
         {{"args = [fake.tensor([3, 2, 3, 2, 3, 2, 4])]", true},
          {"args = [fake.tensor([3, 2, 3, 2, 3, 2, 1])]", false}});
  expect("args = [fake.tensor([4]), fake.tensor([4])]", 1,
         {{"args = [fake.tensor([5]), fake.tensor([6])]", true},
          {"args = [fake.tensor([5]), fake.tensor([1])]", false},
          {"args = [args[0], args[0]]", false}});
}

TEST_F(TensorGuards, DynamicStrides) {
  expect("args = [fake.tensor([4, 3]).t()]", 3,
         {{"args = [fake.tensor([9, 7]).t()]", true},
          {"args = [fake.tensor([7, 9])]", false},
          {"args = [fake.tensor([9, 1]).t()]", false}});
  expect("args = [fake.tensor([4, 3]).t()]", 2,  // sizes (3, s), strides (1, r)
         {{"args = [fake.tensor([9, 3]).t()]", true},
          {"args = [fake.tensor([4, 5]).t()]", false}});
  expect("args = [fake.tensor([2, 3, 2, 3, 2, 3, 2]).t()]", 127,
         {{"args = [fake.tensor([3, 2, 3, 2, 3, 2, 4]).t()]", true},
          {"args = [fake.tensor([3, 2, 3, 2, 3, 2, 4])]", false}});
}

TEST_F(TensorGuards, StorageSharing) {
  expect("a = fake.tensor([4]); args = [a, a.detach(), fake.tensor([4])]", 0,
         {{"pass", true},
          {"b = fake.tensor([4]); args = [b, b.detach(), a]", true},
          {"args = [a, fake.tensor([4]), fake.tensor([4])]", false},
          {"args = [a, a.detach(), a.detach()]", false}});
  // More than fit a pairwise comparison.
  expect("args = [fake.tensor([2]) for _ in range(40)]", 0,
         {{"pass", true},
          {"args = [fake.tensor([2]) for _ in range(40)]", true},
          {"args[39] = args[3].detach()", false}});
}

// The tensors in the dict that is argument 0, as inputs.
void stand_in_items(GuardSet& set, FakeTracer& tracer, PyObject* dict) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    const Source* source =
        set.sources().make(SourceKind::kDictItem, set.sources().arg(0), key);
    ASSERT_TRUE(tracer.stand_in(value, source, {}).ok());
  }
}

// Parameters known by identity, and fresh inputs beside them.
TEST_F(TensorGuards, StorageOfParametersAndInputs) {
  PythonSource python;
  python.run(
      "import fake\nparams = {'p%d' % i: fake.Parameter([2]) for i in "
      "range(20)}\n"
      "def function(*a): pass\nargs = [params, fake.tensor([2])]\n");
  Call call(python);
  auto set = std::make_unique<GuardSet>();
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(set.get()).ok());
  stand_in_items(*set, tracer, call.args[0]);
  ASSERT_TRUE(tracer.stand_in(call.args[1], set->sources().arg(1), {}).ok());
  ASSERT_TRUE(tracer.finish({}).ok());
  ArmedGuards armed(std::move(set));
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  EXPECT_TRUE(check_call(armed, call));
  auto now = [&](const char* source) {
    python.run(source);
    Call changed(python);
    return check_call(armed, changed);
  };
  EXPECT_TRUE(now("args[1] = fake.tensor([2])"));
  EXPECT_EQ(armed.num_rearmed(), 0u);
  EXPECT_FALSE(now("args[1] = params['p7'].detach()"));
  EXPECT_TRUE(now("args[1] = fake.tensor([2])"));
  EXPECT_FALSE(now("params['p3'] = params['p4']"));
  EXPECT_TRUE(now("params['p3'] = fake.Parameter([2])"));
  EXPECT_TRUE(now(
      "params = {k: fake.Parameter([2]) for k in params}; args[0] = params"));
}

// Tensors alike are checked in one loop: a change of any one is seen.
TEST_F(TensorGuards, ParametersAlikeAreCheckedOneByOne) {
  PythonSource python;
  python.run(
      "import fake\ndef function(*a): pass\n"
      "def make(i):\n"
      "    if i % 3 == 2: return fake.tensor([2, 3])\n"
      "    return fake.Parameter([2, 3] if i % 3 else [3])\n"
      "params = {'p%d' % i: make(i) for i in range(30)}\n"
      "args = [params]\n");
  Call call(python);
  auto set = std::make_unique<GuardSet>();
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(set.get()).ok());
  stand_in_items(*set, tracer, call.args[0]);
  ASSERT_TRUE(tracer.finish({}).ok());
  ArmedGuards armed(std::move(set));
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  // 30 parameters cost little more code than three.
  EXPECT_LT(armed.code_size(), 1600u);
  auto holds = [&](const std::string& source) {
    python.run(source);
    Call changed(python);
    return check_call(armed, changed);
  };
  EXPECT_TRUE(holds("pass"));
  for (const char* name : {"p0", "p1", "p2", "p15", "p28", "p29"}) {
    SCOPED_TRACE(name);
    std::string p = "params['" + std::string(name) + "']";
    EXPECT_FALSE(
        holds("r = " + p + ".requires_grad\n" + p + ".requires_grad_(not r)"));
    EXPECT_TRUE(holds(p + ".requires_grad_(r)"));
    EXPECT_FALSE(holds("s = list(" + p + ".shape)\n" + p + ".resize_([7])"));
    EXPECT_TRUE(holds(p + ".resize_(s)"));
    EXPECT_FALSE(holds("kept = " + p + "\n" + p + " = 1"));
    EXPECT_TRUE(holds(p + " = kept"));
    // Another one's storage.
    EXPECT_FALSE(holds(p + " = params['p20'].detach()"));
    EXPECT_TRUE(holds(p + " = kept"));
    EXPECT_TRUE(holds(p + ".add_(1.0)"));
  }
}

TEST_F(TensorGuards, Gradient) {
  PythonSource python;
  python.run(
      "import fake\nx = fake.tensor([2]); x.grad = fake.tensor([2])\n"
      "def function(*a): pass\nargs = [x]");
  auto set = std::make_unique<GuardSet>();
  const Source* grad =
      set->sources().make(SourceKind::kTensorGrad, set->sources().arg(0));
  Call call(python);
  TensorSpec spec;
  TensorFields fields =
      tensor_fields(reinterpret_cast<fake::TensorObject*>(call.args[0])->grad);
  spec.type = fake::g_tensor;
  spec.key_set = fields.key_set;
  spec.dtype = fields.dtype;
  spec.device_type = fields.device_type;
  spec.device_index = fields.device_index;
  spec.sizes = {Expr(2)};
  spec.strides = {Expr(1)};
  set->add_tensor(grad, spec);
  set->gather(grad);
  ArmedGuards armed(std::move(set));
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  EXPECT_TRUE(check_call(armed, call));
  for (auto [source, holds] : std::vector<std::pair<const char*, bool>>{
           {"x.grad = fake.tensor([2])", true},
           {"x.grad = fake.tensor([3])", false},
           {"x.grad = None", false}}) {
    python.run(source);
    EXPECT_EQ(check_call(armed, call), holds) << source;
  }
}

// Random expressions over two symbols as guards, with values at which they
// overflow, divide by zero and take both signs.
TEST_F(TensorGuards, ExpressionsNativeAndReference) {
  PythonSource python;
  python.run("def function(*a): pass\nargs = [7, 3]");
  uint64_t state = 12345;
  auto random = [&](uint64_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % bound;
  };
  std::function<Expr(int)> make = [&](int depth) -> Expr {
    if (depth == 0 || random(5) == 0) {
      if (random(3) == 0) {
        const int64_t kNumbers[] = {
            0, 1, -1, 2, -3, 8, 1000, INT64_MAX / 3, INT64_MIN};
        return Expr(kNumbers[random(9)]);
      }
      return Expr::symbol(static_cast<int>(random(2)));
    }
    static const ExprOp kOps[] = {ExprOp::kAdd, ExprOp::kMul, ExprOp::kFloorDiv,
                                  ExprOp::kMod, ExprOp::kMin, ExprOp::kMax,
                                  ExprOp::kNeg, ExprOp::kEq,  ExprOp::kNe,
                                  ExprOp::kLt,  ExprOp::kLe,  ExprOp::kAnd,
                                  ExprOp::kOr,  ExprOp::kNot};
    ExprOp op = kOps[random(14)];
    std::vector<Expr> operands{make(depth - 1)};
    if (op != ExprOp::kNeg && op != ExprOp::kNot)
      operands.push_back(make(depth - 1));
    return Expr::make(op, operands);
  };
  const int64_t kValues[] = {
      0, 1, 2, 3, 7, -1, -5, 64, 1 << 20, INT64_MAX, INT64_MIN, INT64_MAX / 2};
  int compared = 0, held = 0;
  for (int round = 0; round < 1500; ++round) {
    Expr expr = make(4);
    int64_t hints[] = {kValues[random(12)], kValues[random(12)]};
    int64_t value;
    if (!expr.try_evaluate(hints, &value)) continue;
    if (value == 0) expr = expr_not(expr);
    auto set = std::make_unique<GuardSet>();
    for (int i : {0, 1}) {
      set->add_symbol(
          set->sources().make(SourceKind::kIntValue, set->sources().arg(i)),
          hints[i]);
    }
    set->add_expr(expr);
    auto call_with = [&](int64_t a, int64_t b) {
      python.run("args = [" + std::to_string(a) + ", " + std::to_string(b) +
                 "]");
      return Call(python);
    };
    Call first = call_with(hints[0], hints[1]);
    ArmedGuards armed(std::move(set));
    ASSERT_TRUE(armed.arm(first.args.data(), first.function.get()));
    PredicateFn predicate = armed.predicate_functions()[0];
    for (int pair = 0; pair < 8; ++pair) {
      Call call = call_with(kValues[random(12)], kValues[random(12)]);
      Outcome reference = reference_outcome(armed.guards(), call);
      Outcome native = native_outcome(armed.guards(), predicate, call);
      ASSERT_EQ(native.holds, reference.holds) << expr.str();
      ++compared;
      held += native.holds;
    }
  }
  EXPECT_GT(compared, 3000);
  EXPECT_GT(held, 500);
}

TEST_F(TensorGuards, ExplainsFailures) {
  PythonSource python;
  python.run(
      "import fake\ndef function(x, y): pass\n"
      "args = [fake.tensor([10]), fake.tensor([4, 4])]");
  auto armed = guards_for(python, 0);
  auto text_after = [&](const char* source) {
    python.run(source);
    Call call(python);
    size_t failed = 0;
    PyObject* objects[2];
    EXPECT_FALSE(evaluate(armed->guards(), call.args.data(),
                          call.function.get(), objects, nullptr, &failed));
    Ref code = python.value("function.__code__");
    return explain_failure(armed->guards(), failed, call.args.data(),
                           call.function.get(), code.get());
  };
  EXPECT_EQ(text_after("args[0] = fake.tensor([8])"),
            "x.size(0): expected 10, got 8");
  EXPECT_EQ(
      text_after(
          "args = [fake.tensor([10]), fake.tensor([4, 4]).requires_grad_()]"),
      "y.requires_grad: expected False, got True");
  EXPECT_EQ(text_after("args = [3, 4]"), "type(x): expected Tensor, got int");
  EXPECT_EQ(text_after("fake.set_grad_enabled(False)\n"
                       "args = [fake.tensor([10]), fake.tensor([4, 4])]"),
            "grad mode: expected on, got off");
}

TEST_F(TensorGuards, ShapeHistoryFindsWhatChanges) {
  PythonSource python;
  python.run(
      "import fake\ndef function(x, n): pass\n"
      "args = [fake.tensor([10, 3]), 5]");
  GuardSet set;
  Call first(python);
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(&set).ok());
  ASSERT_TRUE(tracer.stand_in(first.args[0], set.sources().arg(0), {}).ok());
  set.add(GuardKind::kEquals, set.sources().arg(1), first.args[1]);
  ASSERT_TRUE(tracer.finish({}).ok());
  Ref code = python.value("function.__code__");
  ShapeHistory history;
  EXPECT_FALSE(history.observe(set, first.args.data(), nullptr, code.get()));
  python.run("args = [fake.tensor([8, 3]), 5]");
  Call second(python);
  EXPECT_TRUE(history.note_miss(set, second.args.data(), nullptr, code.get()));
  EXPECT_EQ(history.dynamic_dims().at("x").sizes, 1u);
  EXPECT_EQ(history.dynamic_dims().at("x").strides, 0u);
  EXPECT_TRUE(history.dynamic_numbers().empty());
  python.run("args = [fake.tensor([3, 10]).t(), 5]");
  Call turned(python);
  EXPECT_TRUE(history.note_miss(set, turned.args.data(), nullptr, code.get()));
  EXPECT_EQ(history.dynamic_dims().at("x").sizes, 1u);
  EXPECT_EQ(history.dynamic_dims().at("x").strides, 3u);
  python.run("args = [fake.tensor([8, 3]), 6]");
  Call third(python);
  EXPECT_TRUE(history.note_miss(set, third.args.data(), nullptr, code.get()));
  EXPECT_TRUE(history.dynamic_numbers().at("n"));
  EXPECT_FALSE(history.note_miss(set, third.args.data(), nullptr, code.get()));
  // Another rank says nothing about dims.
  python.run("args = [fake.tensor([8, 3, 1]), 5]");
  Call fourth(python);
  EXPECT_FALSE(history.note_miss(set, fourth.args.data(), nullptr, code.get()));
}

}  // namespace
}  // namespace framejit

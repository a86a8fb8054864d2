// Every operation, type and instruction set against the interpreter.
#include "codegen/scalar/lookup.h"
#include "tests/codegen/x86/harness.h"

namespace framejit::codegen {
namespace {

// Stores `op` of loads, over one loop of s0.
Kernel operation_kernel(ScalarOp op, DType type, DType operand,
                        Vectorised vectorised) {
  Kernel kernel;
  kernel.vectorised = vectorised;
  Stage stage;
  const bool columns = vectorised == Vectorised::kOuter;
  (columns ? kernel.loops : stage.loops) = {Expr::symbol(0)};
  const ScalarOpRow& row = scalar_op_row(op);
  std::array<ScalarId, 3> in = {-1, -1, -1};
  for (int i = 0; i < row.operands; ++i) {
    DType each =
        row.types == OperandTypes::kSelect && i == 0 ? DType::kBool : operand;
    in[i] = stage.body.emit(ScalarOp::kLoad, each, {-1, -1, -1}, i);
    Place place;
    place.argument = i;
    place.strides = {Expr(1)};
    stage.loads.push_back(place);
    kernel.arguments.push_back({each});
  }
  if (op == ScalarOp::kScaleByPower) {
    // Whole, and of a size that is allowed.
    ScalarId top = stage.body.constant(operand, 250);
    ScalarId low = stage.body.constant(operand, -250);
    ScalarId most = stage.body.binary(ScalarOp::kMin, in[1], top);
    ScalarId whole = stage.body.unary(
        ScalarOp::kRint, stage.body.binary(ScalarOp::kMax, most, low));
    ScalarId size = stage.body.unary(ScalarOp::kAbs, in[0]);
    ScalarId tame = stage.body.binary(
        ScalarOp::kAnd,
        stage.body.binary(ScalarOp::kLt, size,
                          stage.body.constant(operand, 0x1p60)),
        stage.body.binary(ScalarOp::kLt, stage.body.constant(operand, 0x1p-60),
                          size));
    in[0] = stage.body.ternary(ScalarOp::kSelect, tame, in[0],
                               stage.body.constant(operand, 1.5));
    ScalarId number = stage.body.binary(ScalarOp::kEq, in[1], in[1]);
    in[1] = stage.body.ternary(ScalarOp::kSelect, number, whole, top);
  } else if (op == ScalarOp::kExponent) {
    ScalarId huge = stage.body.constant(operand, 1e30);
    ScalarId size = stage.body.unary(ScalarOp::kAbs, in[0]);
    ScalarId fine = stage.body.binary(
        ScalarOp::kAnd, stage.body.binary(ScalarOp::kLt, size, huge),
        stage.body.binary(ScalarOp::kLt, stage.body.constant(operand, 0),
                          size));
    in[0] = stage.body.ternary(ScalarOp::kSelect, fine, in[0], huge);
  } else if (row.types == OperandTypes::kInteger &&
             (op == ScalarOp::kTruncDiv || op == ScalarOp::kFloorDiv ||
              op == ScalarOp::kMod)) {
    // No division by zero.
    ScalarId one = stage.body.integer(operand, 1);
    ScalarId zero = stage.body.integer(operand, 0);
    in[1] = stage.body.ternary(ScalarOp::kSelect,
                               stage.body.binary(ScalarOp::kEq, in[1], zero),
                               one, in[1]);
  } else if (op == ScalarOp::kFmod && is_integer(operand)) {
    ScalarId one = stage.body.integer(operand, 1);
    ScalarId zero = stage.body.integer(operand, 0);
    in[1] = stage.body.ternary(ScalarOp::kSelect,
                               stage.body.binary(ScalarOp::kEq, in[1], zero),
                               one, in[1]);
  }
  Store store;
  store.place.argument = row.operands;
  store.place.strides = {Expr(1)};
  store.value = stage.body.emit(op, type, in);
  stage.stores.push_back(store);
  kernel.arguments.push_back({type, true});
  kernel.stages.push_back(std::move(stage));
  return kernel;
}

const std::vector<int64_t> kSizes = {0, 1, 7, 16, 17, 1000};

bool is_named(ScalarOp op) {
  return op > ScalarOp::kSqrt && op < ScalarOp::kCheck;
}

TEST(X86Operations, EqualTheInterpreter) {
  int kernels = 0;
  for (size_t number = 0;; ++number) {
    auto op = static_cast<ScalarOp>(number);
    if (op == ScalarOp::kLookup) break;
    const ScalarOpRow& row = scalar_op_row(op);
    if (row.operands == 0 || op == ScalarOp::kCheck) continue;
    for (DType operand : all_dtypes()) {
      for (DType type : all_dtypes()) {
        if (row.result == ResultType::kSame && type != operand) continue;
        if (row.result == ResultType::kBool && type != DType::kBool) continue;
        if (row.types != OperandTypes::kSelect &&
            !accepts(row.types, operand)) {
          continue;
        }
        if (op == ScalarOp::kBitcast &&
            (dtype_size(type) != dtype_size(operand) || type == DType::kBool ||
             operand == DType::kBool)) {
          continue;
        }
        for (Vectorised way : {Vectorised::kInner, Vectorised::kOuter}) {
          Kernel kernel = operation_kernel(op, type, operand, way);
          ASSERT_EQ(verify(kernel), "");
          for (int64_t size : kSizes) {
            if (way == Vectorised::kInner && size == 16) continue;
            std::vector<Data> data(kernel.arguments.size(), {0, size});
            Comparison comparison(kernel, {size}, data, number + 7);
            if (is_named(op)) {
              comparison.tolerance = {type == DType::kF32 ? 3e-7 : 1e-15,
                                      type == DType::kF32 ? 3e-45 : 1e-323};
            }
            if (!comparison.run()) break;
            kernels += comparison.compiled();
          }
        }
      }
    }
  }
  std::printf("%d kernels\n", kernels);
  EXPECT_GT(kernels, 1000);
}

// Tables, at any index: of f32 at an i32, of f64 at an i64.
TEST(X86Operations, LookupsEqualTheInterpreter) {
  int kernels = 0;
  auto check = [&](DType type, DType index, int64_t table) {
    for (Vectorised way : {Vectorised::kInner, Vectorised::kOuter}) {
      Kernel kernel = operation_kernel(ScalarOp::kNeg, index, index, way);
      Stage& stage = kernel.stages.front();
      stage.stores.front().value = stage.body.emit(
          ScalarOp::kLookup, type,
          {stage.body.emit(ScalarOp::kLoad, index, {-1, -1, -1}, 0), -1, -1},
          table);
      kernel.arguments.back().type = type;
      ASSERT_EQ(verify(kernel), "");
      for (int64_t size : kSizes) {
        std::vector<Data> data(kernel.arguments.size(), {0, size});
        Comparison comparison(kernel, {size}, data, table + 1);
        if (!comparison.run()) return;
        kernels += comparison.compiled();
      }
    }
  };
  for (int64_t k = 0; k < kErfTables; ++k) check(DType::kF32, DType::kI32, k);
  for (auto which : {LookupTable::kTurnsHigh, LookupTable::kTurnsMiddle,
                     LookupTable::kTurnsLow}) {
    check(DType::kF64, DType::kI64, static_cast<int64_t>(which));
  }
  EXPECT_GT(kernels, 200);
}

}  // namespace
}  // namespace framejit::codegen

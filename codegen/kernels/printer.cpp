#include <charconv>
#include <cmath>

#include "codegen/kernels/text.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

namespace {

std::string numbered(const char* prefix, int64_t number) {
  return std::string(prefix).append(std::to_string(number));
}

std::string value_name(ScalarId id) { return numbered("v", id); }

// Reads back as the same bits.
std::string constant_text(DType type, Element value) {
  if (!is_float(type)) return std::to_string(static_cast<int64_t>(value));
  double number = as_double(type, value);
  if (std::isnan(number)) return numbered("nan:", static_cast<int64_t>(value));
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  char* end = buffer + sizeof buffer;
  end = type == DType::kF64
            ? std::to_chars(buffer, end, number).ptr
            : std::to_chars(buffer, end, static_cast<float>(number)).ptr;
  return std::string(buffer, end);
}

std::string factor(const Expr& e) {
  std::string text = e.str();
  if (e.is_leaf() && text[0] != '-') return text;
  return std::string("(").append(text).append(")");
}

std::string place_text(const Place& place) {
  std::string out;
  auto term = [&](const std::string& name, const Expr& stride) {
    if (!out.empty()) out += " + ";
    out += stride.is_const(1) ? name : name + "*" + factor(stride);
  };
  for (size_t i = 0; i < place.strides.size(); ++i) {
    if (!place.strides[i].is_const(0)) {
      term(numbered("i", static_cast<int64_t>(i)), place.strides[i]);
    }
  }
  for (const auto& [id, stride] : place.data) {
    term("@(" + value_name(id) + ")", stride);
  }
  if (out.empty() || !place.offset.is_const(0)) {
    out += (out.empty() ? "" : " + ") + factor(place.offset);
  }
  out = numbered("%", place.argument) + "[" + out + "]";
  if (place.when != kNoScalar) out += " when " + value_name(place.when);
  return out;
}

std::string node_text(const Kernel& kernel, const Stage& stage,
                      const ScalarNode& node) {
  const ScalarOpRow& row = scalar_op_row(node.op);
  std::string out = row.text;
  switch (node.op) {
    case ScalarOp::kConst:
      return out + " " +
             constant_text(node.type, static_cast<Element>(node.payload));
    case ScalarOp::kIndex:
      return out + numbered(" i", node.payload);
    case ScalarOp::kNumber:
      return out + numbered(" n", node.payload);
    case ScalarOp::kRow:
      return out + numbered(" r", node.payload);
    case ScalarOp::kLoad:
      return out + " " + place_text(stage.loads[node.payload]);
    case ScalarOp::kLookup:
      return out + numbered(" t", node.payload) + ", " + value_name(node.in[0]);
    default:
      for (int i = 0; i < row.operands; ++i) {
        out += (i ? ", " : " ") + value_name(node.in[i]);
      }
      return out;
  }
}

std::string loops_text(const std::vector<Expr>& loops, size_t first) {
  std::string out = "(";
  for (size_t i = 0; i < loops.size(); ++i) {
    out += (i ? ", " : "") + numbered("i", static_cast<int64_t>(first + i)) +
           " < " + loops[i].str();
  }
  return out + ")";
}

std::string stage_text(const Kernel& kernel, const Stage& stage) {
  std::string out =
      "  stage " + loops_text(stage.loops, kernel.loops.size()) + " {\n";
  const auto& nodes = stage.body.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    out += "    " + value_name(static_cast<ScalarId>(i)) + ": " +
           dtype_name(nodes[i].type) + " = " +
           node_text(kernel, stage, nodes[i]) + "\n";
  }
  for (const Reduction& reduction : stage.reductions) {
    const CombinerRow& row = combiner_row(reduction.combiner);
    out += "    " + numbered("r", reduction.row);
    if (row.results > 1) out += numbered(", r", reduction.row + 1);
    out += std::string(" = ") + row.text + " " + value_name(reduction.value) +
           "\n";
  }
  for (const Store& store : stage.stores) {
    out += "    store " + place_text(store.place) + " = ";
    if (store.prefix_of >= 0) {
      out += "prefix " + std::to_string(store.prefix_of);
    } else {
      if (store.combiner) {
        out += std::string(combiner_row(*store.combiner).text) + " ";
      }
      out += value_name(store.value);
    }
    out += "\n";
  }
  for (const auto& [id, row] : stage.rows) {
    out += "    " + numbered("r", row) + " = " + value_name(id) + "\n";
  }
  return out + "  }\n";
}

}  // namespace

std::string print(const Kernel& kernel) {
  std::string out = "kernel " + kernel.name + "(";
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const KernelArgument& argument = kernel.arguments[i];
    out += (i ? ", " : "") + numbered("%", static_cast<int64_t>(i)) + ": " +
           (argument.is_written ? "out " : "") + dtype_name(argument.type);
  }
  out += ") outer " + loops_text(kernel.loops, 0);
  out += kernel.vectorised == Vectorised::kInner ? " inner" : " columns";
  auto list = [&](const char* what, size_t count, auto item) {
    if (count == 0) return;
    out += std::string(" ") + what + " (";
    for (size_t i = 0; i < count; ++i) out += (i ? ", " : "") + item(i);
    out += ")";
  };
  list("rows", kernel.row_types.size(), [&](size_t i) {
    return numbered("r", static_cast<int64_t>(i)) + ": " +
           dtype_name(kernel.row_types[i]);
  });
  list("numbers", kernel.numbers.size(), [&](size_t i) {
    return numbered("n", static_cast<int64_t>(i)) + " = " +
           kernel.numbers[i].str();
  });
  out += " {\n";
  for (const Stage& stage : kernel.stages) out += stage_text(kernel, stage);
  return out + "}\n";
}

}  // namespace framejit::codegen

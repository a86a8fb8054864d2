#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "codegen/loops/text.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {
namespace {

// Reads back as the same bits.
std::string constant_text(DType type, Element value) {
  if (!is_float(type)) return std::to_string(static_cast<int64_t>(value));
  double number = as_double(type, value);
  if (std::isnan(number)) {
    double usual = std::numeric_limits<double>::quiet_NaN();
    return value == element_of(type, usual) ? "nan"
                                            : "nan:" + std::to_string(value);
  }
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  char* end = buffer + sizeof buffer;
  end = type == DType::kF64
            ? std::to_chars(buffer, end, number).ptr
            : std::to_chars(buffer, end, static_cast<float>(number)).ptr;
  return std::string(buffer, end);
}

// Prints expressions, and remembers which symbols they had.
class ExprPrinter {
 public:
  std::string text(const Expr& e) {
    e.collect_symbols(&symbols_);
    return e.str();
  }
  // As a factor or term of an index.
  std::string factor(const Expr& e) {
    if (e.is_const() || e.is_symbol()) return text(e);
    return std::string("(").append(text(e)).append(")");
  }
  std::string list(const std::vector<Expr>& items) {
    std::string out = "[";
    for (size_t i = 0; i < items.size(); ++i)
      out += (i ? ", " : "") + text(items[i]);
    return out + "]";
  }
  std::string symbols() const {
    std::string out;
    for (const auto& [index, symbol] : symbols_)
      out += (out.empty() ? "" : ", ") + symbol.str();
    return out;
  }

 private:
  std::map<int, Expr> symbols_;
};

// "t3"
std::string numbered(char letter, int64_t number) {
  return std::string(1, letter).append(std::to_string(number));
}

std::string buffer_name(BufferId id) {
  return id == kNoBuffer ? "none" : numbered('%', id);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The text of one body. Which scalars have a line of their own, and their
// names, follow from the way in which they are met from the value.
class BodyPrinter {
 public:
  BodyPrinter(const LoopGraph& graph, const Definition& definition,
              ExprPrinter* exprs)
      : graph_(graph), definition_(definition), exprs_(*exprs) {}

  std::string run() {
    count(definition_.value);
    for (const Index& index : definition_.target) count(index.data);
    std::string value = scalar(definition_.value);
    if (definition_.kind == DefinitionKind::kUpdate)
      value += " to " + indices(definition_.target);
    if (lines_.empty()) return " " + value;
    return lines_ + "\n    " + value;
  }

 private:
  void count(ScalarId id) {
    if (id == kNoScalar) return;
    if (++uses_[id] > 1) return;
    const ScalarNode& node = definition_.body.node(id);
    for (ScalarId in : node.in) count(in);
    if (node.op != ScalarOp::kLoad) return;
    const Access& access = definition_.accesses[node.payload];
    for (const Index& index : access.indices) count(index.data);
    count(access.when);
  }

  static bool stands_inline(ScalarOp op) {
    return op == ScalarOp::kConst || op == ScalarOp::kIndex ||
           op == ScalarOp::kNumber || op == ScalarOp::kRow;
  }

  std::string scalar(ScalarId id) {
    if (auto named = names_.find(id); named != names_.end())
      return named->second;
    std::string text = node_text(definition_.body.node(id));
    if (uses_[id] < 2 || stands_inline(definition_.body.node(id).op))
      return text;
    std::string name = numbered('t', names_.size());
    lines_ += "\n    " + name + " = " + text;
    return names_[id] = name;
  }

  std::string node_text(const ScalarNode& node) {
    switch (node.op) {
      case ScalarOp::kConst:
        return std::string(dtype_name(node.type)) + "(" +
               constant_text(node.type, static_cast<Element>(node.payload)) +
               ")";
      case ScalarOp::kIndex:
        return numbered('i', node.payload);
      case ScalarOp::kNumber:
        return "number(" + exprs_.text(graph_.numbers[node.payload]) + ")";
      case ScalarOp::kLoad:
        return load(definition_.accesses[node.payload]);
      default:
        break;
    }
    const ScalarOpRow& row = scalar_op_row(node.op);
    std::string out = row.text;
    if (row.result == ResultType::kGiven)
      out += std::string(".") + dtype_name(node.type);
    out += "(";
    for (int i = 0; i < row.operands; ++i) {
      if (i) out += ", ";
      out += scalar(node.in[i]);
    }
    return out + ")";
  }

  std::string load(const Access& access) {
    if (access.when == kNoScalar)
      return buffer_name(access.buffer) + indices(access.indices);
    std::string condition = scalar(access.when);
    return "when(" + condition + ", " + buffer_name(access.buffer) +
           indices(access.indices) + ")";
  }

  std::string indices(const std::vector<Index>& list) {
    std::string out = "[";
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) out += ", ";
      out += index_text(list[i]);
    }
    return out + "]";
  }

  std::string index_text(const Index& index) {
    std::string out;
    auto term = [&](const std::string& text) {
      if (!out.empty()) out += " + ";
      out += text;
    };
    for (size_t loop = 0; loop < index.coefficients.size(); ++loop) {
      const Expr& coefficient = index.coefficients[loop];
      if (coefficient.is_const(0)) continue;
      std::string name = numbered('i', loop);
      term(coefficient.is_const(1) ? name
                                   : name + "*" + exprs_.factor(coefficient));
    }
    if (index.data != kNoScalar) term("@(" + scalar(index.data) + ")");
    if (out.empty() || !index.offset.is_const(0))
      term(exprs_.factor(index.offset));
    return out;
  }

  const LoopGraph& graph_;
  const Definition& definition_;
  ExprPrinter& exprs_;
  std::map<ScalarId, int> uses_;
  std::map<ScalarId, std::string> names_;
  std::string lines_;
};

class Printer {
 public:
  explicit Printer(const LoopGraph& graph) : graph_(graph) {}

  std::string run() {
    aliases_.resize(graph_.buffers.size());
    for (size_t i = 0; i < graph_.buffers.size(); ++i) {
      BufferId base = graph_.buffers[i].alias_of;
      if (base != kNoBuffer) aliases_[base].push_back(static_cast<int>(i));
    }
    std::string lines;
    for (const Definition& definition : graph_.definitions)
      lines += statement(definition);
    lines += "  return";
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      lines += (i ? ", " : " ") + buffer_name(graph_.outputs[i]);
      if (graph_.place_of(i) != kNoBuffer)
        lines += " into " + buffer_name(graph_.place_of(i));
    }
    return "loops(" + exprs_.symbols() + ") {\n" + lines + "\n}\n";
  }

 private:
  std::string declaration(BufferId id) {
    const Buffer& buffer = graph_.buffers[id];
    std::string out = buffer_name(id);
    if (!buffer.name.empty()) out.append(" ").append(quoted(buffer.name));
    out += std::string(" : ") + dtype_name(buffer.type) +
           exprs_.list(buffer.sizes);
    if (buffer.strides != contiguous_strides(buffer.sizes))
      out += " strides " + exprs_.list(buffer.strides);
    return out;
  }

  std::string statement(const Definition& definition) {
    std::string out = "  ";
    for (size_t i = 0; i < definition.results.size(); ++i)
      out += (i ? ", " : "") + declaration(definition.results[i]);
    if (!definition.results.empty()) out += " = ";
    out += right_side(definition) + "\n";
    for (BufferId result : definition.results) {
      for (BufferId alias : aliases_[result]) {
        const Buffer& buffer = graph_.buffers[alias];
        out += "  " + declaration(alias) + " = alias " + buffer_name(result);
        if (!buffer.offset.is_const(0))
          out += " offset " + exprs_.text(buffer.offset);
        out += "\n";
      }
    }
    return out;
  }

  std::string right_side(const Definition& definition) {
    auto combiner = [&] {
      return definition.combiner
                 ? std::string(combiner_row(*definition.combiner).text) + " "
                 : std::string();
    };
    auto rest = [&] {
      return loops(definition) + BodyPrinter(graph_, definition, &exprs_).run();
    };
    switch (definition.kind) {
      case DefinitionKind::kInput:
        return "input";
      case DefinitionKind::kMap:
        return "map " + rest();
      case DefinitionKind::kReduce:
        return "reduce " + combiner() + rest();
      case DefinitionKind::kScan:
        return "scan " + combiner() + rest();
      case DefinitionKind::kUpdate:
        return "update " + combiner() + buffer_name(definition.base) + " " +
               rest();
      case DefinitionKind::kExtern:
        break;
    }
    std::string out = call_text(definition) + " (";
    for (size_t i = 0; i < definition.operands.size(); ++i)
      out += (i ? ", " : "") + buffer_name(definition.operands[i]);
    return out + ")";
  }

  std::string loops(const Definition& definition) {
    std::string out = "(";
    size_t kept = definition.loops.size() - definition.reduced;
    for (size_t i = 0; i < definition.loops.size(); ++i) {
      if (definition.reduced && i == kept) {
        out += "; ";
      } else if (i) {
        out += ", ";
      }
      out += numbered('i', i) + " < " + exprs_.text(definition.loops[i]);
    }
    return out + ")";
  }

  const LoopGraph& graph_;
  ExprPrinter exprs_;
  std::vector<std::vector<BufferId>> aliases_;  // of each buffer
};

}  // namespace

std::string call_text(const Definition& call) {
  std::string out = "extern " + std::to_string(call.callee);
  if (call.ordered) out += " ordered";
  if (call.kept) out += " kept";
  if (call.sure) out += " sure";
  if (call.into) out += " into";
  if (call.over >= 0) out += " over " + std::to_string(call.over);
  return out;
}

std::string print(const LoopGraph& graph) { return Printer(graph).run(); }

uint64_t stable_hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace framejit::codegen

#include "codegen/cuda/fold_text.h"

#include "codegen/cuda/body_text.h"
#include "codegen/legalise/fold.h"

namespace framejit::codegen {

namespace {

// A Fold as a struct of states and its functions.
class FoldText {
 public:
  FoldText(Combiner combiner, DType type)
      : name_(cuda_fold_name(combiner, type)),
        type_(type),
        row_(combiner_row(combiner)),
        fold_(make_fold(combiner, type)) {}

  std::string print() const {
    std::string out = "struct " + name_ + " {";
    for (size_t i = 0; i < fold_.states.size(); ++i) {
      out += std::string(" ") + cuda_word_type(fold_.states[i]) + " s" +
             std::to_string(i) + ";";
    }
    out += " };\n" + head("none_" + name_ + "()") + "  " + name_ + " f;\n";
    for (size_t i = 0; i < fold_.states.size(); ++i) {
      out += "  f.s" + std::to_string(i) + " = " +
             cuda_constant(fold_.states[i], fold_.initial[i]) + ";\n";
    }
    out += "  return f;\n}\n";
    out += head("step(" + name_ + " a, " + cuda_type(type_) + " x, i64 at)") +
           assigned(body_of(fold_.step), fold_.stepped);
    out += head("join(" + name_ + " a, " + name_ + " b)") +
           assigned(body_of(fold_.join, true), fold_.joined);
    for (size_t i = 0; i < fold_.results.size(); ++i) {
      const DType given = i == 1 && row_.place ? DType::kI64 : type_;
      CudaBody body = body_of(fold_.finish);
      out += std::string("static __device__ ") + cuda_type(given) + " result" +
             std::to_string(i) + "(" + name_ + " a) {\n" +
             body.statements("  ") + "  return " + body.name(fold_.results[i]) +
             ";\n}\n";
    }
    return out;
  }

 private:
  std::string head(const std::string& rest) const {
    return "static __device__ " + name_ + " " + rest + " {\n";
  }
  CudaBody body_of(const Body& body, bool is_join = false) const {
    auto leaf = [this, is_join](const ScalarNode& node) -> std::string {
      const auto states = static_cast<int64_t>(fold_.states.size());
      if (node.payload < states) return state("a.s", node.payload, node.type);
      if (is_join) return state("b.s", node.payload - states, node.type);
      return node.payload == states ? "x" : "at";
    };
    std::vector<ScalarId> kept = fold_.stepped;
    kept.insert(kept.end(), fold_.joined.begin(), fold_.joined.end());
    kept.insert(kept.end(), fold_.results.begin(), fold_.results.end());
    std::erase_if(kept, [&](ScalarId id) {
      return id >= static_cast<ScalarId>(body.nodes().size());
    });
    return CudaBody(body, leaf, kept);
  }
  static std::string state(const char* of, int64_t number, DType type) {
    std::string text = of + std::to_string(number);
    if (type == DType::kBool) return text + " != 0";
    return std::string(cuda_word_type(type)) == cuda_type(type)
               ? text
               : std::string("(") + cuda_type(type) + ")" + text;
  }
  std::string assigned(const CudaBody& body,
                       const std::vector<ScalarId>& values) const {
    std::string out = body.statements("  ") + "  " + name_ + " f;\n";
    for (size_t i = 0; i < values.size(); ++i) {
      out += "  f.s" + std::to_string(i) + " = " + body.name(values[i]) + ";\n";
    }
    return out + "  return f;\n}\n";
  }

  std::string name_;
  DType type_;
  const CombinerRow& row_;
  Fold fold_;
};

}  // namespace

std::string cuda_fold_name(Combiner combiner, DType type) {
  return std::string(combiner_row(combiner).text) + "_" + dtype_name(type);
}

std::string print_cuda_fold(Combiner combiner, DType type) {
  return FoldText(combiner, type).print();
}

}  // namespace framejit::codegen

// A kernel as text, in the making: what one point of a stage does
// (print_points.cpp), and how blocks, teams and threads share the points
// (print_cuda.cpp).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/body_text.h"
#include "codegen/cuda/plan.h"
#include "codegen/cuda/print_cuda.h"

namespace framejit::codegen {

inline std::string numbered(const char* prefix, int64_t number) {
  return prefix + std::to_string(number);
}

inline std::string loop_name(size_t loop) { return "i" + std::to_string(loop); }

class CudaPrinter {
 public:
  CudaPrinter(const Kernel& kernel, const CudaOptions& options)
      : kernel_(kernel), options_(options), plan_(plan_cuda(kernel, options)) {}

  CudaKernel run();

 private:
  CudaKernel finish();
  void line(const std::string& text) {
    out_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n";
  }
  void open(const std::string& text) {
    line(text);
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }

  // An integer that all threads know, of the type of indices.
  std::string index(const Expr& e);
  std::string parameter(const Expr& e);
  std::string product(const std::vector<Expr>& extents);
  struct Variable {
    std::string name, extent;
  };
  // Variables from a flat number, slowest first.
  void unflatten(const std::vector<Variable>& variables,
                 const std::string& flat);
  // Of the stage's loops; the last one has this name, if any.
  void unflatten_inner(const Stage& stage, const std::string& flat,
                       const std::string& last_name = "");
  void begin_points();
  void begin_columns();
  // base: what the fastest loop is called where several of its points are done.
  std::string element(const Place& place, const CudaBody& body,
                      const std::string& base = "");
  std::string leaf(const Stage& stage, const ScalarNode& node);
  std::string memory_at(const Stage& stage, int64_t load);
  CudaBody body_of(const Stage& stage);
  const StagePlan& plan_of(const Stage& stage) const {
    return plan_.stages[static_cast<size_t>(&stage - kernel_.stages.data())];
  }
  std::string base_name(const Stage& stage) const {
    return "b" + std::to_string(plan_.fastest(kernel_, stage));
  }
  std::string fold_name(const Stage& stage, const Reduction& reduction);
  std::string shared_of(const std::string& fold);

  void stage(const Stage& stage);
  void tiles();
  void row_loop(const Stage& stage);
  void scanned_loop(const Stage& stage);
  // The points from `base` of the fastest loop on, as many as are done at once.
  void points(const Stage& stage, const std::string& base,
              const std::string& at);
  // For each of them, by the number u.
  void open_side_by_side(const std::string& width, const std::string& base) {
    line("#pragma unroll");
    open("for (int u = 0; u < " + width + "; ++u) {");
    line("const idx i" + base.substr(1) + " = " + base + " + u;");
  }
  // What they load as one, and what they store as one: prefixes, or the others.
  std::string vector_of(const Stage& stage, const Place& place);
  void load_vectors(const Stage& stage, const std::string& base);
  bool is_stored_wide(const Stage& stage, size_t store, bool prefixes) const;
  void declare_vectors(const Stage& stage, bool prefixes);
  void store_vectors(const Stage& stage, const std::string& base,
                     bool prefixes);
  void point(const Stage& stage, const std::string& at);
  void step(const Stage& stage, size_t number, const std::string& at);
  void store(const Stage& stage, size_t number, const std::string& value);
  // What a store's place is, null where it is not done.
  std::string condition(const Stage& stage, const Store& store);
  void give_rows(const Stage& stage);
  void sync_before(const Stage& stage);

  // Floats side by side are added up, in pairs, before they go to an
  // accumulator of 64 bits, whose additions are slow: what is added; nothing:
  // it is not.
  ScalarId summed_first(const Stage& stage, const Reduction& reduction) const {
    if (plan_of(stage).width == 1 || has_prefix(stage) ||
        reduction.combiner != Combiner::kSum)
      return kNoScalar;
    const ScalarNode& node = stage.body.node(reduction.value);
    if (node.type == DType::kF32) return reduction.value;
    const bool is_wider = node.type == DType::kF64 &&
                          node.op == ScalarOp::kCast &&
                          stage.body.type(node.in[0]) == DType::kF32;
    return is_wider ? node.in[0] : kNoScalar;
  }
  bool is_alone(const Stage& stage) const {
    return is_sequential(stage, options_) && plan_.team > 1;
  }
  bool is_atomic(const Stage& stage) const {
    return plan_.is_flat_stage || (plan_.team > 1 && !stage.loops.empty() &&
                                   !is_sequential(stage, options_));
  }
  std::string team() const { return std::to_string(plan_.team); }
  std::string kept(int number) const {
    return "kept" + std::to_string(number) + "[" +
           (plan_.width > 1 ? "n * " + std::to_string(plan_.width) + " + u"
                            : "n") +
           "]";
  }

  const Kernel& kernel_;
  const CudaOptions& options_;
  const CudaPlan plan_;
  CudaKernel result_;
  std::string out_, folds_, shared_;
  std::set<std::string> known_folds_, known_shared_;
  std::vector<std::string> narrow_;  // declarations of p0 ...
  int depth_ = 1;
  // Since the threads of a team last waited for each other.
  std::set<int> loaded_, stored_;
};

}  // namespace framejit::codegen

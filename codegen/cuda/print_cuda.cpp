#include "codegen/cuda/print_cuda.h"

#include <algorithm>
#include <set>

#include "codegen/cuda/body_text.h"
#include "codegen/legalise/fold.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

namespace {

constexpr int kBlock = 256, kWarp = 32;

std::string numbered(const char* prefix, int64_t number) {
  return prefix + std::to_string(number);
}

// How elements of memory are put together: of the prelude.
const char* update_of(Combiner combiner) {
  switch (*combiner_row(combiner).operation) {
    case ScalarOp::kAdd:
      return "with_add";
    case ScalarOp::kMul:
      return "with_mul";
    case ScalarOp::kMin:
      return "with_min";
    case ScalarOp::kMax:
      return "with_max";
    case ScalarOp::kOr:
      return "with_or";
    default:
      return "with_and";
  }
}

bool is_ordered(const Store& store) {
  return store.combiner || !store.place.data.empty();
}

// A Fold as a struct of states and its functions.
class FoldText {
 public:
  FoldText(Combiner combiner, DType type)
      : name_(std::string(combiner_row(combiner).text) + "_" +
              dtype_name(type)),
        type_(type),
        row_(combiner_row(combiner)),
        fold_(make_fold(combiner, type)) {}

  const std::string& name() const { return name_; }
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
    return CudaBody(body, leaf);
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

class Printer {
 public:
  Printer(const Kernel& kernel, const CudaOptions& options)
      : kernel_(kernel), options_(options) {}

  CudaKernel run();

 private:
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
  // i<first>.. from a flat number.
  void unflatten(const std::vector<Expr>& loops, size_t first,
                 const std::string& flat);
  std::string element(const Place& place, const CudaBody& body);
  std::string leaf(const Stage& stage, const ScalarNode& node);
  std::string fold_name(const Stage& stage, const Reduction& reduction);
  std::string shared_of(const std::string& fold);

  void stage(const Stage& stage);
  void row_loop(const Stage& stage);
  void scanned_loop(const Stage& stage);
  void point(const Stage& stage, const std::string& at);
  void step(const Stage& stage, size_t number, const std::string& at);
  void store(const Stage& stage, const Store& store, const std::string& value);
  // What a store's place is, null where it is not done.
  std::string condition(const Stage& stage, const Store& store);
  void give_rows(const Stage& stage);
  void sync_before(const Stage& stage);

  bool is_sequential(const Stage& stage) const {
    return options_.deterministic &&
           std::ranges::any_of(stage.stores, is_ordered);
  }
  bool is_atomic(const Stage& stage) const {
    return is_flat_ ||
           (team_ > 1 && !stage.loops.empty() && !is_sequential(stage));
  }
  static bool has_prefix(const Stage& stage) {
    return std::ranges::any_of(stage.stores,
                               [](const Store& s) { return s.prefix_of >= 0; });
  }
  std::string team() const { return std::to_string(team_); }

  const Kernel& kernel_;
  const CudaOptions& options_;
  CudaKernel result_;
  std::string out_, folds_, shared_;
  std::set<std::string> known_folds_, known_shared_;
  std::vector<std::string> narrow_;  // declarations of p0 ...
  int depth_ = 1, team_ = 1, block_ = kBlock;
  // One stage, each of whose points is a thread's.
  bool is_flat_ = false;
  // Since the threads of a team last waited for each other.
  std::set<int> loaded_, stored_;
};

std::string Printer::parameter(const Expr& e) {
  auto& known = result_.parameters;
  auto found = std::find(known.begin(), known.end(), e);
  if (found == known.end()) found = known.insert(found, e);
  return numbered("q", found - known.begin());
}

std::string Printer::index(const Expr& e) {
  if (e.is_const()) {
    std::string text = std::to_string(e.constant());
    if (options_.wide_indices) text += "LL";
    return e.constant() < 0 ? "(" + text + ")" : text;
  }
  std::string name = parameter(e);
  if (options_.wide_indices) return name;
  std::string declared =
      "const idx p" + name.substr(1) + " = (idx)" + name + ";";
  if (std::ranges::find(narrow_, declared) == narrow_.end())
    narrow_.push_back(declared);
  return "p" + name.substr(1);
}

std::string Printer::product(const std::vector<Expr>& extents) {
  std::string out;
  for (const Expr& extent : extents) {
    if (extent.is_const(1)) continue;
    out += (out.empty() ? "" : " * ") + index(extent);
  }
  return out.empty() ? "1" : out;
}

void Printer::unflatten(const std::vector<Expr>& loops, size_t first,
                        const std::string& flat) {
  std::string rest = flat;
  for (size_t k = loops.size(); k-- > 0;) {
    const std::string name = numbered("i", static_cast<int64_t>(first + k));
    if (k == 0) {
      line("const idx " + name + " = " + rest + ";");
      return;
    }
    const std::string extent = index(loops[k]);
    line("const idx " + name + " = " + rest + " % " + extent + ";");
    const std::string next = numbered("rest", static_cast<int64_t>(first + k));
    line("const idx " + next + " = " + rest + " / " + extent + ";");
    rest = next;
  }
}

std::string Printer::element(const Place& place, const CudaBody& body) {
  std::string out;
  auto term = [&](const std::string& text) {
    out += (out.empty() ? "" : " + ") + text;
  };
  for (size_t k = 0; k < place.strides.size(); ++k) {
    const Expr& stride = place.strides[k];
    if (stride.is_const(0)) continue;
    const std::string name = numbered("i", static_cast<int64_t>(k));
    term(stride.is_const(1) ? name : name + " * " + index(stride));
  }
  for (const auto& [id, stride] : place.data) {
    term(stride.is_const(1) ? body.name(id)
                            : body.name(id) + " * " + index(stride));
  }
  if (out.empty() || !place.offset.is_const(0)) term(index(place.offset));
  return numbered("a", place.argument) + "[" + out + "]";
}

std::string Printer::leaf(const Stage& stage, const ScalarNode& node) {
  switch (node.op) {
    case ScalarOp::kIndex: {
      std::string name = numbered("i", node.payload);
      return options_.wide_indices ? name : "(i64)" + name;
    }
    case ScalarOp::kNumber: {
      const Expr& number = kernel_.numbers[node.payload];
      if (number.is_const())
        return cuda_constant(DType::kI64,
                             static_cast<Element>(number.constant()));
      return parameter(number);
    }
    case ScalarOp::kRow:
      return numbered("r", node.payload);
    default:
      break;
  }
  const Place& place = stage.loads[node.payload];
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  std::string text = element(place, body);
  if (node.type == DType::kBool) text += " != 0";
  std::string when;
  if (!place.data.empty() && has_check(stage.body)) when = "ok";
  if (place.when != kNoScalar) {
    when += (when.empty() ? "" : " && ") + body.name(place.when);
  }
  if (when.empty()) return text;
  return when + " ? " + text + " : " + cuda_constant(node.type, 0);
}

std::string Printer::fold_name(const Stage& stage, const Reduction& reduction) {
  FoldText fold(reduction.combiner, stage.body.type(reduction.value));
  if (known_folds_.insert(fold.name()).second) folds_ += fold.print();
  return fold.name();
}

std::string Printer::shared_of(const std::string& fold) {
  if (team_ <= kWarp) return "(" + fold + "*)0";
  const std::string name = "shared_" + fold;
  if (known_shared_.insert(fold).second) {
    shared_ += "  __shared__ " + fold + " " + name + "[" +
               std::to_string(team_ / kWarp) + "];\n";
  }
  return name;
}

void Printer::step(const Stage& stage, size_t number, const std::string& at) {
  const Reduction& reduction = stage.reductions[number];
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  const std::string state = numbered("f", static_cast<int64_t>(number));
  line(state + " = step(" + state + ", " + body.name(reduction.value) +
       ", (i64)" + at + ");");
}

std::string Printer::condition(const Stage& stage, const Store& store) {
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  std::string out;
  auto both = [&](const std::string& text) {
    out += (out.empty() ? "" : " && ") + text;
  };
  if (stage.loops.empty() && team_ > 1) both("lane == 0");
  if (has_check(stage.body)) both("ok");
  if (store.place.when != kNoScalar) both(body.name(store.place.when));
  return out;
}

void Printer::store(const Stage& stage, const Store& store,
                    const std::string& value) {
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  const DType type = kernel_.arguments[store.place.argument].type;
  const std::string place = element(store.place, body);
  const std::string memory = std::string("(") + cuda_memory_type(type) + ")";
  std::string text;
  if (!store.combiner) {
    text = place + " = " + value + ";";
  } else {
    const std::string op = update_of(*store.combiner);
    text = is_atomic(stage)
               ? "update<" + op + ">(&" + place + ", " + memory + value + ");"
               : place + " = " + op + "::of(" + place + ", " + memory + value +
                     ");";
  }
  const std::string when = condition(stage, store);
  line(when.empty() ? text : "if (" + when + ") " + text);
}

// One point of a stage: loads, arithmetic, stores, accumulators.
void Printer::point(const Stage& stage, const std::string& at) {
  if (has_check(stage.body)) line("bool ok = true;");
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  out_ += body.statements(std::string(static_cast<size_t>(depth_) * 2, ' '));
  if (has_check(stage.body)) line("if (!ok) check_failed(failed);");
  for (size_t i = 0; i < stage.reductions.size(); ++i) step(stage, i, at);
  for (const Store& each : stage.stores) {
    store(stage, each,
          each.prefix_of >= 0 ? "result0(" + numbered("f", each.prefix_of) + ")"
                              : body.name(each.value));
  }
  for (auto [id, row] : stage.rows) {
    line(numbered("r", row) + " = " + body.name(id) + ";");
  }
}

void Printer::row_loop(const Stage& stage) {
  const bool alone = is_sequential(stage) && team_ > 1;
  const std::string flat =
      stage.loops.size() == 1
          ? numbered("i", static_cast<int64_t>(kernel_.loops.size()))
          : "k";
  const std::string begin = team_ == 1 || alone ? "0" : "lane";
  const std::string by =
      team_ == 1 || alone ? "++" + flat : flat + " += " + team();
  open(std::string(alone ? "if (lane == 0) " : "") + "for (idx " + flat +
       " = " + begin + "; " + flat + " < " + product(stage.loops) + "; " + by +
       ") {");
  if (stage.loops.size() > 1)
    unflatten(stage.loops, kernel_.loops.size(), flat);
  point(stage, flat);
  close();
}

// Prefixes by a team: as many points at once as it has threads.
void Printer::scanned_loop(const Stage& stage) {
  std::vector<char> scanned(stage.reductions.size(), 0);
  for (const Store& each : stage.stores) {
    if (each.prefix_of >= 0) scanned[each.prefix_of] = 1;
  }
  CudaBody body(stage.body,
                [&](const ScalarNode& n) { return leaf(stage, n); });
  open("for (idx base = 0; base < " + product(stage.loops) +
       "; base += " + team() + ") {");
  line("const idx k = base + lane;");
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) continue;
    const std::string fold = fold_name(stage, stage.reductions[i]);
    line(fold + " e" + std::to_string(i) + " = none_" + fold + "();");
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    if (stage.stores[i].prefix_of < 0) continue;
    const DType type = kernel_.arguments[stage.stores[i].place.argument].type;
    line(std::string(cuda_memory_type(type)) + "* to" + std::to_string(i) +
         " = 0;");
  }
  open("if (k < " + product(stage.loops) + ") {");
  unflatten(stage.loops, kernel_.loops.size(), "k");
  if (has_check(stage.body)) line("bool ok = true;");
  out_ += body.statements(std::string(static_cast<size_t>(depth_) * 2, ' '));
  if (has_check(stage.body)) line("if (!ok) check_failed(failed);");
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) {
      step(stage, i, "k");
      continue;
    }
    const std::string e = numbered("e", static_cast<int64_t>(i));
    line(e + " = step(" + e + ", " + body.name(stage.reductions[i].value) +
         ", (i64)k);");
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const Store& each = stage.stores[i];
    if (each.prefix_of < 0) {
      store(stage, each, body.name(each.value));
      continue;
    }
    const std::string when = condition(stage, each);
    line(std::string(when.empty() ? "" : "if (" + when + ") ") + "to" +
         std::to_string(i) + " = &" + element(each.place, body) + ";");
  }
  close();
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) continue;
    const std::string n = std::to_string(i);
    const std::string fold = fold_name(stage, stage.reductions[i]);
    line(fold + " total" + n + ";");
    line("const " + fold + " prefix" + n + " = join(f" + n + ", scan_team<" +
         team() + ">(e" + n + ", " + shared_of(fold) + ", &total" + n + "));");
    line("f" + n + " = join(f" + n + ", total" + n + ");");
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    if (stage.stores[i].prefix_of < 0) continue;
    const std::string n = std::to_string(i);
    line("if (to" + n + ") *to" + n + " = result0(prefix" +
         std::to_string(stage.stores[i].prefix_of) + ");");
  }
  close();
}

void Printer::give_rows(const Stage& stage) {
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const Reduction& reduction = stage.reductions[i];
    const std::string n = std::to_string(i);
    const std::string fold = fold_name(stage, reduction);
    const bool scanned = has_prefix(stage) && !is_sequential(stage) &&
                         std::ranges::any_of(stage.stores, [&](const Store& s) {
                           return s.prefix_of == static_cast<int>(i);
                         });
    if (team_ > 1 && !stage.loops.empty() && !scanned) {
      line("f" + n + " = join_team<" + team() + ">(f" + n + ", " +
           shared_of(fold) + ");");
    }
    line(numbered("r", reduction.row) + " = result0(f" + n + ");");
    if (combiner_row(reduction.combiner).results > 1) {
      line(numbered("r", reduction.row + 1) + " = result1(f" + n + ");");
    }
  }
}

// What one thread has stored another may load, and the other way about, only
// when all have come here.
void Printer::sync_before(const Stage& stage) {
  if (team_ == 1) return;
  bool waits = false;
  for (const Place& place : stage.loads)
    waits |= stored_.contains(place.argument);
  for (const Store& each : stage.stores) {
    waits |= stored_.contains(each.place.argument) ||
             loaded_.contains(each.place.argument);
  }
  if (waits) {
    line("sync_team<" + team() + ">();");
    loaded_.clear();
    stored_.clear();
  }
  for (const Place& place : stage.loads) loaded_.insert(place.argument);
  for (const Store& each : stage.stores) stored_.insert(each.place.argument);
}

void Printer::stage(const Stage& stage) {
  sync_before(stage);
  open("{");
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const std::string fold = fold_name(stage, stage.reductions[i]);
    line(fold + " f" + std::to_string(i) + " = none_" + fold + "();");
  }
  if (stage.loops.empty() || is_flat_) {
    point(stage, "0");
  } else if (has_prefix(stage) && team_ > 1 && !is_sequential(stage)) {
    scanned_loop(stage);
  } else {
    row_loop(stage);
  }
  give_rows(stage);
  close();
}

CudaKernel Printer::run() {
  result_.name = kernel_.name;
  for (const Stage& each : kernel_.stages) {
    result_.refused = cuda_refuses(each.body);
    if (!result_.refused.empty()) return std::move(result_);
  }
  const bool has_inner = std::ranges::any_of(
      kernel_.stages, [](const Stage& s) { return !s.loops.empty(); });
  is_flat_ = kernel_.stages.size() == 1 && has_inner &&
             kernel_.stages[0].reductions.empty() &&
             !is_sequential(kernel_.stages[0]);
  if (has_inner && !is_flat_ && kernel_.vectorised == Vectorised::kInner) {
    team_ = options_.team;
  }
  if (team_ > kWarp) block_ = team_;
  std::vector<Expr> loops = kernel_.loops;
  if (is_flat_) {
    const auto& inner = kernel_.stages[0].loops;
    loops.insert(loops.end(), inner.begin(), inner.end());
  }
  result_.points = loops;
  result_.team = team_;
  result_.block = block_;

  depth_ = 2;
  unflatten(loops, 0, "flat");
  for (size_t i = 0; i < kernel_.row_types.size(); ++i) {
    line(std::string(cuda_type(kernel_.row_types[i])) + " " +
         numbered("r", static_cast<int64_t>(i)) + ";");
  }
  for (const Stage& each : kernel_.stages) stage(each);
  std::string body = std::move(out_);
  out_.clear();

  depth_ = 1;
  const std::string points = product(loops);
  if (team_ > 1) line("const int lane = threadIdx.x % " + team() + ";");
  const std::string teams = std::to_string(block_ / team_);
  const std::string mine =
      team_ == 1 ? "threadIdx.x" : "threadIdx.x / " + team();
  open("for (idx flat = (idx)blockIdx.x * " + teams + " + " + mine +
       "; flat < " + points + "; flat += (idx)gridDim.x * " + teams + ") {");
  std::string loop = std::move(out_) + body + "  }\n}\n";

  std::string text = "typedef " +
                     std::string(options_.wide_indices ? "i64" : "i32") +
                     " idx;\n" + folds_;
  text += "extern \"C\" __global__ void __launch_bounds__(" +
          std::to_string(block_) + ") " + kernel_.name + "(\n    ";
  for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
    const KernelArgument& argument = kernel_.arguments[i];
    text += std::string(argument.is_written ? "" : "const ") +
            cuda_memory_type(argument.type) + "* __restrict__ " +
            numbered("a", static_cast<int64_t>(i)) + ", ";
  }
  for (size_t i = 0; i < result_.parameters.size(); ++i) {
    text += std::string(result_.parameters[i].is_float() ? "double" : "i64") +
            " q" + std::to_string(i) + ", ";
  }
  text += "i32* __restrict__ failed) {\n" + shared_;
  for (const std::string& declared : narrow_) text += "  " + declared + "\n";
  result_.source = text + loop;
  return std::move(result_);
}

// The largest |element| of a place, and whether it is below the limit.
bool is_near(const Place& place, const std::vector<int64_t>& extents,
             const int64_t* symbols) {
  constexpr __int128 kLimit = 0x7fffffff;
  auto size = [&](const Expr& e) {
    const __int128 value = e.evaluate(symbols);
    return value < 0 ? -value : value;
  };
  __int128 reach = size(place.offset);
  for (size_t k = 0; k < place.strides.size(); ++k) {
    reach += size(place.strides[k]) * std::max<int64_t>(extents[k] - 1, 0);
    if (reach > kLimit) return false;
  }
  // Data are of 64 bits, and so is what is computed with them.
  for (const auto& [id, stride] : place.data) {
    if (size(stride) > kLimit) return false;
  }
  return reach <= kLimit;
}

}  // namespace

CudaKernel print_cuda(const Kernel& kernel, const CudaOptions& options) {
  return Printer(kernel, options).run();
}

TargetInfo cuda_target(int architecture) {
  TargetInfo target;
  // Of the largest part of each generation (V100, A100, H100, B200).
  target.threads = architecture >= 100  ? 148
                   : architecture >= 90 ? 132
                   : architecture >= 80 ? 108
                                        : 80;
  target.vector_bytes = kWarp * 4;
  target.l2_bytes = 64 << 10;  // what a block finds near it
  // A launch costs more than a few idle multiprocessors, and a point has a
  // block of threads.
  target.fewest_points = 8;
  target.large_reduction = 1 << 20;
  return target;
}

int cuda_team(const Kernel& kernel, const TargetInfo& target) {
  int64_t longest = 0;
  for (const Stage& stage : kernel.stages) {
    if (!stage.loops.empty())
      longest = std::max(longest, target.hint(stage.loops));
  }
  if (kernel.vectorised == Vectorised::kOuter || longest <= 4) return 1;
  // A thread that has a few points to do hides what a wait for memory costs.
  if (longest <= 1024) return kWarp;
  return longest <= 16384 ? kBlock : 2 * kBlock;
}

bool fits_32_bits(const Kernel& kernel, const int64_t* symbols) {
  // Room for the stride of the grid.
  constexpr int64_t kMostPoints = 1 << 30;
  std::vector<int64_t> outer;
  for (const Expr& extent : kernel.loops)
    outer.push_back(extent.evaluate(symbols));
  for (const Stage& stage : kernel.stages) {
    std::vector<int64_t> extents = outer;
    for (const Expr& extent : stage.loops)
      extents.push_back(extent.evaluate(symbols));
    __int128 points = 1;
    for (int64_t extent : extents) {
      points *= extent;
      if (points > kMostPoints) return false;
    }
    if (points == 0) continue;
    for (const Place& place : stage.loads) {
      if (!is_near(place, extents, symbols)) return false;
    }
    for (const Store& store : stage.stores) {
      if (!is_near(store.place, extents, symbols)) return false;
    }
  }
  return true;
}

}  // namespace framejit::codegen
